//! How a plan reads its rows, as MySQL counts it: whole tables, ranges, joins without a key, sorting, temporary tables.

use super::{
    Plan, Select,
    access::Path,
    query::{Join, Leaf, StepKind},
};
use crate::monitor::access::{FULL_JOIN, NO_INDEX, RANGE, SCAN, SORT_RANGE, SORT_SCAN, TEMPORARY};

/// All that is true of a plan; rows by key have none.
pub fn of(plan: &Plan) -> u8 {
    match plan {
        Plan::Update(update) => of_path(&update.access.path),
        Plan::Delete(delete) => of_path(&delete.access.path),
        _ => plan.reading().map_or(0, of_select),
    }
}

fn of_path(path: &Path) -> u8 {
    match path {
        Path::Points { .. } => 0,
        Path::Range { equal, low, high, .. } if equal.is_empty() && low.is_none() && high.is_none() => SCAN | NO_INDEX,
        Path::Range { low, high, .. } if low.is_some() || high.is_some() => RANGE,
        Path::Range { .. } => 0,
        Path::Listed(listed) if listed.is_one() => 0,
        Path::Union { .. } | Path::Listed(_) => RANGE,
    }
}

fn of_select(select: &Select) -> u8 {
    let mut found = match (&select.join, &select.table, &select.access) {
        (Some(join), ..) => of_join(join),
        (None, Some(_), Some(access)) => of_path(&access.path),
        _ => 0,
    };
    let is_grouped = select.group.as_ref().is_some_and(|group| !group.keys.is_empty() || group.windows.is_some());
    if is_grouped || select.distinct {
        found |= TEMPORARY;
    }
    if !select.in_order && !select.order.is_empty() {
        found |= if found & RANGE != 0 { SORT_RANGE } else { SORT_SCAN };
    }
    found
}

fn of_join(join: &Join) -> u8 {
    let mut found = 0;
    let mut is_first = true;
    for step in &join.steps {
        let StepKind::Join(leaf) = &step.kind else { continue };
        let own = match (&leaf.leaf, &leaf.lookup, &leaf.scan) {
            (Leaf::Table { .. }, None, Some(scan)) => of_path(&scan.path),
            (Leaf::Table { .. }, ..) => 0,
            (Leaf::Derived(_), ..) => SCAN | TEMPORARY | NO_INDEX,
            (Leaf::Nested(inner), ..) => of_join(inner),
        };
        found |= match is_first {
            true => own,
            false if own & SCAN != 0 => own & !SCAN | FULL_JOIN,
            false => own & !RANGE,
        };
        is_first = false;
    }
    found
}
