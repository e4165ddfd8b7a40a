//! A table with a unique and an ordered index and one of lists, read at rest in every way there is: the rows themselves, the entries of the unique index and of the lists, the rows
//! in the order of the ordered index. All of them must tell the same.

use std::collections::{BTreeMap, BTreeSet};

/// The column that comes and goes.
pub const ADDED: &str = "added";

/// A row: primary key, unique value (`None`: NULL, not in the unique index), value of the ordered index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    pub key: u64,
    pub unique: Option<u64>,
    pub ordered: u64,
    /// In [`ADDED`], with the number of that column: it is another one each time that it comes.
    pub added: Option<(u64, Option<u64>)>,
}

/// A table as found.
#[derive(Clone, Default, Debug)]
pub struct Table {
    pub rows: Vec<Row>,
    /// Entries of the unique index: value and primary key.
    pub entries: Vec<(u64, u64)>,
    /// Entries of the index of lists: mark and primary key.
    pub marks: Vec<(u64, u64)>,
    /// What a scan through the ordered index gives, partition by partition in its order.
    pub in_order: Vec<Vec<Row>>,
}

impl Table {
    /// # Errors
    /// Where they disagree.
    pub fn check(&self) -> Result<(), String> {
        let rows = rows_by_key(&self.rows)?;
        check_unique(&rows, &self.entries)?;
        check_marks(&rows, &self.marks)?;
        check_order(&rows, &self.in_order)
    }
}

/// # Errors
/// A key that stands twice.
pub fn rows_by_key(all: &[Row]) -> Result<BTreeMap<u64, Row>, String> {
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for row in all {
        if rows.insert(row.key, *row).is_some() {
            return Err(format!("the primary key {} stands twice", row.key));
        }
    }
    Ok(rows)
}

/// A unique index has every row once and no other; a row without a value is not in it.
///
/// # Errors
/// Where they disagree.
pub fn check_unique(rows: &BTreeMap<u64, Row>, entries: &[(u64, u64)]) -> Result<(), String> {
    let mut owners: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows.values() {
        if let Some(value) = row.unique
            && let Some(other) = owners.insert(value, row.key)
        {
            return Err(format!("rows {other} and {} have the unique value {value}", row.key));
        }
    }
    check_entries(rows, entries)?;
    match owners.iter().find(|(value, _)| !entries.iter().any(|(entry, _)| entry == *value)) {
        Some((value, key)) => Err(format!("row {key} with the unique value {value} is not in the unique index")),
        None => Ok(()),
    }
}

/// A unique index that is being built has no entry twice and none without its row.
///
/// # Errors
/// Where they disagree.
pub fn check_entries(rows: &BTreeMap<u64, Row>, entries: &[(u64, u64)]) -> Result<(), String> {
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for &(value, key) in entries {
        if seen.insert(value, key).is_some() {
            return Err(format!("the unique index has {value} twice"));
        }
        match rows.get(&key) {
            None => return Err(format!("the unique index gives row {key} for {value}, which is not there")),
            Some(row) if row.unique != Some(value) => {
                return Err(format!("the unique index gives row {key} for {value}, which has {:?}", row.unique));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The marks that a row has: some rows have none, and one that has several may share any of them.
pub fn marks(row: &Row) -> BTreeSet<u64> {
    let of_rank = (0..row.ordered % 4).map(|n| row.ordered / 4 + n);
    of_rank.chain(row.unique.map(|value| value % 5)).collect()
}

/// An index of lists has an entry for each mark of each row, and no other.
///
/// # Errors
/// Where they disagree.
pub fn check_marks(rows: &BTreeMap<u64, Row>, entries: &[(u64, u64)]) -> Result<(), String> {
    let mut wanted: BTreeSet<(u64, u64)> =
        rows.values().flat_map(|row| marks(row).into_iter().map(|mark| (mark, row.key))).collect();
    for (mark, key) in entries {
        if !wanted.remove(&(*mark, *key)) {
            return Err(format!("the index of lists has row {key} for {mark} twice, or wrongly: {:?}", rows.get(key)));
        }
    }
    match wanted.first() {
        Some((mark, key)) => Err(format!("row {key} with the mark {mark} is not in the index of lists")),
        None => Ok(()),
    }
}

/// An ordered index, read partition by partition, has every row once and in its order.
///
/// # Errors
/// Where they disagree.
pub fn check_order(rows: &BTreeMap<u64, Row>, in_order: &[Vec<Row>]) -> Result<(), String> {
    let mut found: BTreeMap<u64, Row> = BTreeMap::new();
    for row in in_order.iter().flatten() {
        if found.insert(row.key, *row).is_some() {
            return Err(format!("the ordered index has row {} twice", row.key));
        }
        if rows.get(&row.key) != Some(row) {
            return Err(format!("the ordered index has {row:?}, the table {:?}", rows.get(&row.key)));
        }
    }
    if let Some(key) = rows.keys().find(|key| !found.contains_key(key)) {
        return Err(format!("row {key} is not in the ordered index"));
    }
    for part in in_order {
        if let Some(pair) = part.windows(2).find(|w| w[0].ordered > w[1].ordered) {
            return Err(format!("the ordered index gives {:?} before {:?}", pair[0], pair[1]));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: u64, unique: Option<u64>, ordered: u64) -> Row {
        Row { key, unique, ordered, added: None }
    }
    fn good() -> Table {
        let rows = vec![row(1, Some(10), 5), row(2, None, 5), row(3, Some(30), 1), row(4, None, 9)];
        Table {
            rows: rows.clone(),
            entries: vec![(30, 3), (10, 1)],
            marks: vec![(1, 2), (0, 1), (1, 1), (2, 4), (0, 3)],
            in_order: vec![vec![rows[2], rows[0]], vec![rows[1], rows[3]]],
        }
    }
    fn after(change: impl FnOnce(&mut Table)) -> String {
        let mut table = good();
        change(&mut table);
        table.check().err().unwrap_or_default()
    }

    #[test]
    fn agreement_is_good() {
        assert_eq!(after(|_| {}), "");
        assert_eq!(Table::default().check(), Ok(()));
    }

    #[test]
    fn the_unique_index_has_every_row_once_and_no_other() {
        assert!(after(|t| t.rows[2].unique = Some(10)).contains("have the unique value 10"));
        assert!(after(|t| t.entries.truncate(1)).contains("is not in the unique index"));
        assert!(after(|t| t.entries.push((40, 5))).contains("which is not there"));
        assert!(after(|t| t.entries.push((40, 4))).contains("which has None"));
        assert!(after(|t| t.entries.push((30, 1))).contains("30 twice"));
        assert!(after(|t| t.entries[0].0 = 31).contains("gives row 3 for 31"));
    }

    #[test]
    fn the_index_of_lists_has_every_mark_of_every_row_once() {
        assert!(after(|t| t.marks.truncate(4)).contains("row 3 with the mark 0 is not in the index of lists"));
        assert!(after(|t| t.marks.push((0, 1))).contains("row 1 for 0 twice"));
        assert!(after(|t| t.marks[0].0 = 3).contains("row 2 for 3"));
        assert!(after(|t| t.marks[0].1 = 7).contains("row 7 for 1"));
    }

    #[test]
    fn the_ordered_index_has_every_row_once_in_order() {
        assert!(after(|t| t.in_order[1].truncate(1)).contains("row 4 is not in the ordered index"));
        assert!(after(|t| t.in_order[1][1].ordered = 8).contains("the ordered index has Row"));
        assert!(after(|t| t.in_order[0].reverse()).contains("before"));
        assert!(after(|t| t.in_order[1].insert(0, row(3, Some(30), 1))).contains("twice"));
        assert!(after(|t| t.in_order[0].insert(0, row(8, None, 0))).contains("None"));
    }

    #[test]
    fn an_index_that_is_being_built_may_lack_entries_but_has_no_others() {
        let rows = rows_by_key(&good().rows).expect("each key once");
        assert_eq!(check_entries(&rows, &[(30, 3)]), Ok(()));
        for wrong in [[(30, 3), (30, 3)], [(30, 3), (40, 5)], [(30, 3), (31, 3)], [(30, 3), (10, 2)]] {
            assert!(check_entries(&rows, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_primary_key_stands_once() {
        assert!(after(|t| t.rows.push(t.rows[3])).contains("primary key 4"));
    }
}
