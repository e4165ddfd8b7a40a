//! A step of a plan as EXPLAIN tells it: its words, its table, what is expected and counted of it.

use super::{Asked, CONDITIONS, asked};
use crate::{expr::probe::Part, value::json::Json};

/// Said of changes, as MySQL does.
pub(super) const NOT_EXECUTABLE: &str = "<not executable by iterator executor>";

const BEFORE: &str = "Rows fetched before execution";

pub(super) const TEMPORARY: &str = "<temporary>";

/// A step and what it works on.
#[derive(Debug)]
pub struct Step {
    /// What the steps around it have it for.
    pub heading: Option<String>,
    pub operation: String,
    /// What the operation says, by the names of MySQL's documents.
    pub members: Vec<(&'static str, Json)>,
    /// Estimated.
    pub rows: Option<f64>,
    pub part: Option<Part>,
    pub inputs: Vec<Step>,
    /// Subqueries of the block whose topmost step this is that no condition names.
    pub in_select_list: Vec<Step>,
}

impl Step {
    pub(super) fn bare(operation: impl Into<String>, inputs: Vec<Step>) -> Step {
        let operation = operation.into();
        Step {
            heading: None,
            operation,
            members: Vec::new(),
            rows: None,
            part: None,
            inputs,
            in_select_list: Vec::new(),
        }
    }
    pub fn new(operation: impl Into<String>, access_type: &str, inputs: Vec<Step>) -> Step {
        Step::bare(operation, inputs).says("access_type", Json::text(access_type))
    }
    /// The one row that there is without tables.
    pub(super) fn before() -> Step {
        Step::new(BEFORE, "rows_fetched_before_execution", Vec::new())
    }
    pub(super) fn over(self, operation: impl Into<String>, access_type: &str) -> Step {
        Step::new(operation, access_type, vec![self])
    }
    pub(super) fn scanned(self, shown: &str) -> Step {
        self.over(format!("Table scan on {shown}"), "table").says("table_name", Json::text(shown))
    }
    pub fn says(mut self, name: &'static str, value: Json) -> Step {
        self.members.push((name, value));
        self
    }
    pub fn is(self, name: &'static str) -> Step {
        self.says(name, Json::Bool(true))
    }
    pub fn headed(self, heading: impl Into<String>) -> Step {
        Step { heading: Some(heading.into()), ..self }
    }
    pub fn counted(self, part: Part) -> Step {
        Step { part: Some(part), ..self }
    }
    pub(super) fn estimated(self, rows: Option<f64>) -> Step {
        Step { rows, ..self }
    }

    /// A table is read whose rows are wanted that have certain values of a column; conditions are asked above.
    pub(super) fn told(mut self, column: String) -> Step {
        match self.inputs.pop() {
            Some(read) => self.inputs.push(read.told(column)),
            None => {
                self.operation += &format!(", with join filter on {column}");
                self = self.says("join_filter_column", Json::String(column));
            }
        }
        self
    }

    /// Puts a subquery below the step whose condition names it, or in the select list.
    pub(super) fn place(&mut self, subquery: Asked) {
        match self.naming(&asked(subquery.number)) {
            Some(step) => step.inputs.push(subquery.at("condition")),
            None => self.in_select_list.push(subquery.at("projection")),
        }
    }
    fn naming(&mut self, value: &str) -> Option<&mut Step> {
        let says = |said: &Json| match said {
            Json::String(text) => text.contains(value),
            Json::Array(list) => list.iter().any(|one| matches!(one, Json::String(text) if text.contains(value))),
            _ => false,
        };
        if self.members.iter().any(|(name, said)| CONDITIONS.contains(name) && says(said)) {
            return Some(self);
        }
        self.inputs.iter_mut().find_map(|input| input.naming(value))
    }
}
