//! In which order tables are joined, and how each is reached: the cheapest of all orders in which one table is joined after the other.
//!
//! Costs are numbers of rows, weighed by what was measured of the steps ([`KEY`] and its like): reading all rows of a table, keys of a batch in one request, ranges of an
//! index, a hash table. Up to [`EXACT_MAX`] tables every set of them is looked at, each with its cheapest order; beyond that the next table is each time the one that
//! adds least. Between equals the written order decides.

/// Tables of which all orders are looked at.
const EXACT_MAX: usize = 10;
/// Most tables that are ordered at all.
pub const ITEMS_MAX: usize = 60;

/// A row that a data node looks at in a scan, one that it sends, and both.
const LOOK: f64 = 0.35;
const SEND: f64 = 0.65;
const SCAN: f64 = LOOK + SEND;
/// Putting a row into a hash table, and looking one up.
const BUILD: f64 = 2.0;
const PROBE: f64 = 0.6;
/// Reading a row by its key; by the front of an index, the range and each row.
const KEY: f64 = 3.0;
const RANGE: f64 = 30.0;
/// Rows of a hash table beyond which it may be more than a statement may keep; and by how much more it costs then.
const HASHED_ROWS_MAX: f64 = 1.5e6;
const TOO_MANY: f64 = 50.0;
/// A pair of rows that is compared.
const PAIR: f64 = 0.3;
/// What a statement costs that must take a snapshot first, because not all of it is reached by keys.
const SNAPSHOT: f64 = 300.0;
/// Ranges beyond which the executor reads the whole table.
const RANGES_MAX: f64 = 2000.0;

/// How many times fewer rows narrow what is read of a table, and how many rows data nodes can be told of.
const FEWER: f64 = 4.0;
const NAMED_MAX: f64 = 60_000.0;
/// Part of the rows that have no match where nothing says so.
const FEW: f64 = 0.1;

type Set = u64;

/// A column of an index: sets of tables of which each can give its value (the empty one: a constant), and the edges that say so.
pub type Part = Vec<(Set, Option<usize>)>;

/// An index that may lead to rows.
pub struct Way {
    pub parts: Vec<Part>,
    /// Rows of 1, 2, ... columns.
    pub rows: Vec<f64>,
    pub is_unique: bool,
}

pub struct Table {
    /// Rows read without any other table, and those of them that its own conditions leave.
    pub read: f64,
    pub rows: f64,
    /// Its own conditions leave this part of all.
    pub part: f64,
    pub ways: Vec<Way>,
    /// Tables that must be there before: those of the conditions of its LEFT JOIN, those that LATERAL looks at.
    pub after: Set,
    /// Each row before has at least one row behind.
    pub is_left: bool,
    /// Each row before goes on if there is a row here (true), or if there is none.
    pub exists: Option<bool>,
    /// It is reached by keys from the beginning.
    pub is_bound: bool,
    /// A hint says that its rows are not hashed.
    pub no_hash: bool,
}

/// A condition on several tables.
pub struct Edge {
    pub tables: Set,
    /// Which part of the pairs satisfies it.
    pub part: f64,
    /// Values that are equal: it makes a hash table.
    pub is_equal: bool,
}

/// How a table is joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub table: usize,
    /// All its rows into a hash table, although keys would lead to them.
    pub by_hash: bool,
    /// Rows read: for each row before where keys lead to them, altogether otherwise.
    pub read: f64,
    /// Rows behind it.
    pub rows: f64,
    /// By hash, and there are fewer rows before than in the table.
    pub narrows: bool,
}

#[derive(Clone)]
struct Plan {
    cost: f64,
    rows: f64,
    is_by_key: bool,
    steps: Vec<Step>,
}

/// All rows of a table are looked at, and so many are sent.
fn whole(looked_at: f64, sent: f64) -> f64 {
    looked_at * LOOK + sent.min(looked_at) * SEND
}

fn joined(tables: &[Table], edges: &[Edge], before: &Plan, set: Set, at: usize) -> Plan {
    let table = &tables[at];
    let own: Set = 1 << at;
    let is_ready = |e: &Edge| e.tables & own != 0 && e.tables & !(set | own) == 0;
    let ready: Vec<usize> = edges.iter().enumerate().filter(|(_, e)| is_ready(e)).map(|(i, _)| i).collect();
    let all: f64 = ready.iter().map(|&i| edges[i].part).product();
    let mut step = Step { table: at, by_hash: false, read: table.read, rows: 0.0, narrows: false };
    let (mut cost, mut is_by_key);
    let mut matches = table.rows * all;
    let has_hash = !table.no_hash && ready.iter().any(|&i| edges[i].is_equal);
    if set == 0 {
        cost = whole(table.read, table.rows);
        is_by_key = table.is_bound;
    } else {
        step.narrows = has_hash && before.rows * FEWER < table.rows;
        cost = if step.narrows {
            // Rows that the rows before name; where these are few, data nodes send no others.
            let named = (before.rows * matches).min(table.rows);
            let sent = if before.rows <= NAMED_MAX { named } else { table.rows };
            whole(table.read, sent) + sent * PROBE + named * BUILD + before.rows * PROBE
        } else if has_hash {
            let build = table.rows * if table.rows > HASHED_ROWS_MAX { BUILD * TOO_MANY } else { BUILD };
            whole(table.read, table.rows) + build + before.rows * PROBE
        } else {
            whole(table.read, table.rows) + before.rows * table.rows * PAIR
        };
        is_by_key = false;
        step.by_hash = true;
    }
    for way in table.ways.iter().filter(|_| set != 0) {
        let (mut count, mut used) = (0, Vec::new());
        for part in &way.parts {
            let Some((_, edge)) = part.iter().find(|(needs, _)| needs & !set == 0) else { break };
            used.extend(edge);
            count += 1;
        }
        let leads = way.parts[..count].iter().flatten().any(|(needs, _)| *needs != 0);
        if count == 0 || !leads || (way.is_unique && count < way.parts.len() && way.rows.is_empty()) {
            continue;
        }
        let is_point = way.is_unique && count == way.parts.len();
        let per = if is_point { 1.0 } else { way.rows.get(count - 1).copied().unwrap_or(table.read) };
        let rest: f64 = ready.iter().filter(|i| !used.contains(i)).map(|&i| edges[i].part).product();
        matches = matches.min(per * table.part * rest);
        let by_way = before.rows * if is_point { KEY } else { RANGE + per * SCAN };
        if (before.rows <= RANGES_MAX || is_point || !has_hash) && (by_way < cost || before.rows <= 1.0) {
            (cost, is_by_key, step.by_hash, step.read) = (by_way, before.is_by_key, false, per);
        }
    }
    let go_on = match table.exists {
        Some(true) => matches.min(1.0),
        Some(false) => (1.0 - matches).max(FEW),
        None if table.is_left => matches.max(1.0),
        None => matches,
    };
    let rows = before.rows * go_on;
    step.rows = rows.max(0.001);
    let mut steps = before.steps.clone();
    steps.push(step);
    let snapshot = if before.is_by_key && !is_by_key { SNAPSHOT } else { 0.0 };
    is_by_key &= before.is_by_key;
    // What is joined is made and looked at.
    Plan { cost: before.cost + cost + snapshot + step.rows * PAIR, rows: step.rows, is_by_key, steps }
}

/// The cheapest order; empty where none is possible.
pub fn cheapest(tables: &[Table], edges: &[Edge]) -> Vec<Step> {
    let start = Plan { cost: 0.0, rows: 1.0, is_by_key: true, steps: Vec::new() };
    let may =
        |set: Set, at: usize| set & 1 << at == 0 && tables[at].after & !set == 0 && (set != 0 || !tables[at].is_left);
    if tables.len() > EXACT_MAX {
        let (mut plan, mut set) = (start, 0);
        while plan.steps.len() < tables.len() {
            let next = (0..tables.len()).filter(|&at| may(set, at)).map(|at| joined(tables, edges, &plan, set, at));
            let Some(best) = next.min_by(|a, b| a.cost.total_cmp(&b.cost)) else { return Vec::new() };
            set |= best.steps.last().map_or(0, |s| 1 << s.table);
            plan = best;
        }
        return plan.steps;
    }
    let full: Set = (1 << tables.len()) - 1;
    let mut best: Vec<Option<Plan>> = vec![None; full as usize + 1];
    best[0] = Some(start);
    for set in 0..=full {
        let Some(plan) = best[set as usize].take() else { continue };
        if set == full {
            return plan.steps;
        }
        for at in (0..tables.len()).filter(|&at| may(set, at)) {
            let next = joined(tables, edges, &plan, set, at);
            let place = &mut best[(set | 1 << at) as usize];
            if place.as_ref().is_none_or(|known| next.cost < known.cost) {
                *place = Some(next);
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: f64, part: f64, ways: Vec<Way>) -> Table {
        Table {
            read: rows,
            rows: rows * part,
            part,
            ways,
            after: 0,
            is_left: false,
            exists: None,
            is_bound: false,
            no_hash: false,
        }
    }
    fn key(needs: Set, edge: usize, rows: f64, is_unique: bool) -> Way {
        Way { parts: vec![vec![(needs, Some(edge))]], rows: vec![rows], is_unique }
    }
    fn edge(tables: Set, part: f64) -> Edge {
        Edge { tables, part, is_equal: true }
    }
    fn order(steps: &[Step]) -> Vec<(usize, bool)> {
        steps.iter().map(|s| (s.table, s.by_hash)).collect()
    }

    #[test]
    fn few_rows_lead_to_many_by_key() {
        // 0: many rows, with an index on what 1 names; 1: one row of its condition.
        let few = Table { is_bound: true, ..table(1.0, 1.0, Vec::new()) };
        let tables = [table(1e6, 1.0, vec![key(0b10, 0, 4.0, false)]), few];
        let steps = cheapest(&tables, &[edge(0b11, 1e-6)]);
        assert_eq!(order(&steps), [(1, false), (0, false)]);
        assert_eq!(steps[1].read, 4.0);
    }

    #[test]
    fn a_small_table_is_hashed_and_the_large_one_streamed() {
        // Each row of 0 names a row of 1 by key; there are a million of the first and a thousand of the others.
        let tables = [table(1e6, 1.0, Vec::new()), table(1000.0, 1.0, vec![key(0b01, 0, 1.0, true)])];
        assert_eq!(order(&cheapest(&tables, &[edge(0b11, 0.001)])), [(0, false), (1, true)]);
    }

    #[test]
    fn few_rows_narrow_what_is_kept_of_a_large_table() {
        // No index leads from one to the other: the large one comes last, and is not put into a hash table as a whole.
        let tables = [table(1e6, 1.0, Vec::new()), table(100.0, 1.0, Vec::new())];
        let steps = cheapest(&tables, &[edge(0b11, 1e-4)]);
        assert_eq!(order(&steps), [(1, false), (0, true)]);
        assert_eq!([steps[0].narrows, steps[1].narrows], [false, true]);
    }

    #[test]
    fn who_asks_for_rows_gets_no_more_of_its_own() {
        for (exists, rows) in [(Some(true), 5000.0), (Some(false), 500.0), (None, 50_000.0)] {
            let asked = Table { after: 0b10, is_left: true, exists, ..table(1000.0, 1.0, Vec::new()) };
            let steps = cheapest(&[asked, table(5000.0, 1.0, Vec::new())], &[edge(0b11, 0.01)]);
            assert_eq!((order(&steps), steps[1].rows), (vec![(1, false), (0, true)], rows));
        }
    }

    #[test]
    fn a_left_join_waits_for_its_tables_and_keeps_rows() {
        let left = Table { after: 0b10, is_left: true, ..table(1.0, 1.0, Vec::new()) };
        let steps = cheapest(&[left, table(5000.0, 1.0, Vec::new())], &[edge(0b11, 0.0001)]);
        assert_eq!(order(&steps), [(1, false), (0, true)]);
        assert_eq!(steps[1].rows, 5000.0);
    }

    #[test]
    fn many_tables_are_ordered_too() {
        // A chain, each table a hundred times the one before it, written backwards.
        for count in [5usize, 14] {
            let tables: Vec<Table> =
                (0..count).map(|i| table(10f64.powi((count - i) as i32), 1.0, Vec::new())).collect();
            let edges: Vec<Edge> =
                (1..count).map(|i| edge(0b11 << (i - 1), 10f64.powi(-((count - i + 1) as i32)))).collect();
            let steps = cheapest(&tables, &edges);
            assert_eq!(steps.len(), count);
            let mut seen: Vec<usize> = steps.iter().map(|s| s.table).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }
}
