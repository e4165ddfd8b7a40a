//! EXPLAIN FORMAT=TREE and EXPLAIN ANALYZE: the steps of a plan as MySQL writes its own.
//!
//! A line is a step, what it works on is indented below. `rows` is what the order of a join was chosen by. EXPLAIN ANALYZE runs the statement and adds to each step what was
//! counted: rows for each run, runs, and when it gave its first and its last row, in milliseconds since the statement began. Rows are pushed through the steps of a join in batches, so
//! a step's time has in it what the steps behind it do meanwhile. Lookups that a batch has in common are counted for each row that asked.

use std::time::Duration;

use super::steps::{self, step::Step};
use crate::{
    catalog::statistics::Statistics,
    expr::probe::{Counts, Part},
    plan::Plan,
};

/// The text of a plan, with what was counted when it ran.
pub fn text(plan: &Plan, statistics: &Statistics, counts: Option<&Counts>) -> String {
    let mut out = String::new();
    write(&steps::of(plan, statistics), 0, counts, &mut out);
    out
}

fn write(step: &Step, depth: usize, counts: Option<&Counts>, out: &mut String) {
    let mut depth = depth;
    if let Some(heading) = &step.heading {
        begin(depth, heading, out);
        out.push('\n');
        depth += 1;
    }
    begin(depth, &step.operation, out);
    if let Some(rows) = step.rows {
        *out += &format!("  (rows={})", short(rows));
    }
    if let (Some(counts), Some(part)) = (counts, step.part) {
        *out += if step.rows.is_some() { " " } else { "  " };
        *out += &actual(counts, part);
    }
    out.push('\n');
    step.inputs.iter().for_each(|input| write(input, depth + 1, counts, out));
    step.in_select_list.iter().for_each(|subquery| write(subquery, depth, counts, out));
}

fn begin(depth: usize, text: &str, out: &mut String) {
    *out += &" ".repeat(4 * depth);
    *out += "-> ";
    *out += text;
}

fn actual(counts: &Counts, part: Part) -> String {
    let Some(counted) = counts.get(part).filter(|c| c.loops > 0) else { return "(never executed)".to_owned() };
    let ms = |time: Duration| short(time.as_secs_f64() * 1e3);
    let (first, last) = (ms(counted.first.unwrap_or(counted.last)), ms(counted.last));
    let rows = short(counted.rows as f64 / counted.loops as f64);
    format!("(actual time={first}..{last} rows={rows} loops={})", counted.loops)
}

/// Three digits, or all those of a whole number.
fn short(x: f64) -> String {
    if x >= 100.0 {
        return format!("{x:.0}");
    }
    let digits = if x > 0.0 { (2 - x.log10().floor() as i32).clamp(0, 9) as usize } else { 0 };
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
