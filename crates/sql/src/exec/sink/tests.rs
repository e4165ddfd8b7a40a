//! A sink gives the same rows in the same order with any memory.

use std::{fmt::Write, sync::Arc};

use apus_types::Value;

use crate::{
    errors::WARNINGS_MAX,
    exec::sink::*,
    plan::{Plan, text::plan_text},
    spill::Space,
    tests::{catalog, env},
    variables::{Globals, Variables},
};

/// Keeps rows as text.
#[derive(Default)]
struct Shown(Vec<String>);

impl Shown {
    fn push<'d>(&mut self, values: impl Iterator<Item = Datum<'d>>) {
        let mut line = String::new();
        values.for_each(|value| write!(line, "{value:?} ").unwrap());
        self.0.push(line);
    }
}

impl Target for Shown {
    fn row_of(&mut self, outputs: &[Output], cx: &Context<'_>) -> Result<()> {
        let values = outputs.iter().map(|o| o.expr.eval(cx)).collect::<Result<Vec<_>>>()?;
        self.push(values.into_iter());
        Ok(())
    }
    fn row_of_values(&mut self, _: &[Output], values: &[Datum<'_>]) -> Result<()> {
        self.push(values.iter().cloned());
        Ok(())
    }
    async fn flush_if_full(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A row of `pair`: a, b, c, d, n.
fn row_number(n: u32, columns: Option<&[u16]>) -> Vec<Value<'static>> {
    let random = |salt: u32, below: u32| {
        let mixed = n.wrapping_add(salt).wrapping_mul(2_654_435_761);
        (mixed ^ mixed >> 15).wrapping_mul(2_246_822_519) % below
    };
    const WORDS: [&str; 6] = ["a", "A", "b", "zeta", "Zeta", "a long word, to fill"];
    let text = match random(1, 40) {
        few @ 0..6 => WORDS[few as usize],
        _ => Box::leak(format!("w{}", random(2, 3000)).into_boxed_str()),
    };
    let or_null = |value: Value<'static>, salt: u32| if random(salt, 17) == 0 { Value::Null } else { value };
    let row = [
        Value::Int(i64::from(random(3, 500))),
        or_null(Value::Bytes(text.as_bytes()), 4),
        or_null(Value::UInt(u64::from(random(5, 2000))), 6),
        or_null(Value::Date(apus_types::time::pack_date(2000 + random(7, 9) as u16, 1 + random(8, 12) as u8, 3)), 9),
        or_null(Value::Decimal { unscaled: i128::from(random(10, 5000)) - 2500, scale: 2 }, 11),
    ];
    columns.map_or_else(|| row.to_vec(), |columns| columns.iter().map(|&c| row[usize::from(c)]).collect())
}

/// The answer with so much memory, the warnings, and whether files were written.
async fn answer(sql: &str, rows: u32, memory: usize, space: Space) -> Result<(Vec<String>, Vec<String>, bool)> {
    let (catalog, mut env) = (catalog(), env());
    env.variables = Variables::new(Arc::new(Globals::default().with_spill(space)), false);
    env.variables.query_memory = memory;
    env.variables.only_full_group_by = false;
    let Plan::Select(plan) = plan_text(&catalog, &env, sql, Vec::new()).unwrap() else { panic!("{sql}") };
    let mut sink = Sink::new(&plan, &[], &env, SinkBuffers::default())?;
    let (mut shown, mut row) = (Shown::default(), Vec::new());
    for n in 0..rows {
        row.clear();
        plan.layout.encode(&row_number(n, plan.columns.as_deref()), &mut row).unwrap();
        if sink.wanted() == 0 || !sink.row(&row, &mut shown)? {
            break;
        }
        if n % 16 == 0 {
            sink.settle().await?;
        }
    }
    sink.finish(&mut shown).await?;
    let has_spilled = sink.over.is_some();
    drop(sink);
    shown.0.push(format!("{:?}", env.has_notes()));
    let notes = env.take_notes().into_iter().map(|note| note.message).collect();
    Ok((shown.0, notes, has_spilled))
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

const STATEMENTS: [&str; 43] = [
    "SELECT a, b, c FROM pair ORDER BY b, c DESC",
    "SELECT a, b FROM pair ORDER BY b DESC",
    "SELECT b FROM pair ORDER BY a LIMIT 7",
    "SELECT b, c FROM pair ORDER BY a LIMIT 3000 OFFSET 1500",
    "SELECT SQL_CALC_FOUND_ROWS b, c FROM pair ORDER BY a, d LIMIT 5",
    "SELECT b, n * 2 AS twice FROM pair ORDER BY twice, d",
    "SELECT DISTINCT b FROM pair",
    "SELECT DISTINCT b, c FROM pair",
    "SELECT DISTINCT c, b FROM pair LIMIT 5 OFFSET 2000",
    "SELECT DISTINCT b, c FROM pair ORDER BY c",
    "SELECT DISTINCT n, b FROM pair ORDER BY n DESC, b LIMIT 40",
    "SELECT c, COUNT(*), SUM(a), AVG(n), MIN(b), MAX(d) FROM pair GROUP BY c",
    "SELECT b, COUNT(b), SUM(c + 0.5e0) FROM pair GROUP BY b",
    "SELECT b, c, COUNT(*) FROM pair GROUP BY b, c",
    "SELECT b, c, COUNT(*) AS many FROM pair GROUP BY b, c ORDER BY many DESC, c",
    "SELECT b, c, AVG(n) AS mean FROM pair GROUP BY b, c ORDER BY mean LIMIT 11",
    "SELECT b, c, COUNT(*) FROM pair GROUP BY b, c HAVING COUNT(*) > 1",
    "SELECT c, a, d FROM pair GROUP BY c",
    "SELECT DISTINCT COUNT(*), SUM(a) FROM pair GROUP BY b, c",
    "SELECT DISTINCT SUM(a), n FROM pair GROUP BY b, c, n ORDER BY 1 DESC",
    "SELECT COUNT(DISTINCT b) FROM pair",
    "SELECT COUNT(DISTINCT b, c), COUNT(DISTINCT n), COUNT(*) FROM pair",
    "SELECT SUM(DISTINCT n), AVG(DISTINCT c), SUM(DISTINCT c + 0.1e0) FROM pair",
    "SELECT a, COUNT(DISTINCT b), MAX(DISTINCT n), SUM(DISTINCT n * 1e-3) FROM pair GROUP BY a",
    "SELECT d, COUNT(DISTINCT b, c), MIN(b) FROM pair GROUP BY d ORDER BY 2",
    "SELECT d, GROUP_CONCAT(DISTINCT b) FROM pair GROUP BY d",
    "SELECT a, GROUP_CONCAT(DISTINCT b ORDER BY c DESC SEPARATOR '/') FROM pair GROUP BY a",
    "SELECT a, GROUP_CONCAT(c ORDER BY n) FROM pair GROUP BY a",
    "SELECT a, VARIANCE(n), BIT_XOR(c), STDDEV_SAMP(n) FROM pair GROUP BY a, d",
    "SELECT a, d, COUNT(*), SUM(n), GROUPING(a), GROUPING(d) FROM pair GROUP BY a, d WITH ROLLUP",
    "SELECT b, c, COUNT(DISTINCT n) FROM pair GROUP BY b, c WITH ROLLUP",
    "SELECT b, c, SUM(n) AS total FROM pair GROUP BY b, c WITH ROLLUP HAVING total > 1 ORDER BY total, b LIMIT 100",
    "SELECT COUNT(*), MAX(b) FROM pair",
    "SELECT a, b, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM pair",
    "SELECT a, n, SUM(n) OVER (PARTITION BY a ORDER BY n), RANK() OVER (PARTITION BY d, a ORDER BY b DESC) FROM pair",
    "SELECT DISTINCT a, LAG(n, 2) OVER (PARTITION BY a ORDER BY c), COUNT(*) OVER (PARTITION BY a) FROM pair ORDER BY 2, 1",
    "SELECT a, SUM(c), RANK() OVER (PARTITION BY d ORDER BY SUM(c)) FROM pair GROUP BY a, d ORDER BY a, 3 DESC, 2",
    "SELECT b, FIRST_VALUE(b) OVER (PARTITION BY a, d ORDER BY n ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM pair LIMIT 500",
    "SELECT a, AVG(n) OVER w, NTILE(3) OVER w FROM pair WINDOW w AS (PARTITION BY a ORDER BY n RANGE 5 PRECEDING)",
    "SELECT b, ROW_NUMBER() OVER w, RANK() OVER w, DENSE_RANK() OVER w, PERCENT_RANK() OVER w, CUME_DIST() OVER w, NTILE(7) OVER w, SUM(n + 0.1e0) OVER w, LAG(c, 3, a) OVER w, FIRST_VALUE(c) OVER w, COUNT(*) OVER (), AVG(n) OVER () FROM pair WINDOW w AS (ORDER BY b, c DESC)",
    "SELECT n, MAX(b) OVER w, SUM(c) OVER w, COUNT(*) OVER w, ROW_NUMBER() OVER w, LAG(b, 0) OVER w, MIN(d) OVER w, AVG(a) OVER w FROM pair WINDOW w AS (ORDER BY n ROWS UNBOUNDED PRECEDING)",
    "SELECT a, ROW_NUMBER() OVER (), RANK() OVER (), NTILE(5) OVER (), CUME_DIST() OVER (), SUM(c) OVER (), LAG(a) OVER (), DENSE_RANK() OVER () FROM pair",
    "SELECT JSON_ARRAYAGG(a) FROM pair GROUP BY b, c",
];

#[test]
fn answers_are_those_of_memory() {
    let mut spilled = 0;
    for sql in STATEMENTS {
        for rows in [0, 6000] {
            let wanted = run(answer(sql, rows, usize::MAX / 4, Space::default())).unwrap();
            assert!(!wanted.2, "{sql}");
            for memory in [0, 60_000, 300_000] {
                let found = run(answer(sql, rows, memory, Space::default())).unwrap_or_else(|e| panic!("{sql}: {e}"));
                spilled += u32::from(found.2);
                assert!(found.0 == wanted.0, "{sql}, {rows} rows with {memory} bytes");
                assert_eq!(found.1.len().min(WARNINGS_MAX), wanted.1.len().min(WARNINGS_MAX), "{sql}");
            }
        }
    }
    assert!(spilled > 70, "{spilled} statements have spilled");
}

#[test]
fn without_room_on_disk_memory_is_all_there_is() {
    let sql = STATEMENTS[0];
    let refused = |bytes| run(answer(sql, 6000, 20_000, Space::new(std::env::temp_dir(), bytes))).unwrap_err().errno;
    assert_eq!((refused(0), refused(100_000)), (1038, 1114));
    let nowhere = Space::new("/proc/apus-spill".into(), 1 << 30);
    assert_eq!(run(answer(sql, 6000, 20_000, nowhere)).unwrap_err().errno, 1004);
    assert!(!run(answer(STATEMENTS[2], 6000, 20_000, Space::default())).unwrap().0.is_empty());
}
