//! ALTER TABLE of constraints, and what it may do to columns that expressions read.

use apus_signal::{dict::ChecksChange, schema::CheckMessage};
use apus_types::{
    Column, TableSchema,
    form::Source,
    rules::{CheckDef, Enforced},
    schema::DefaultValue,
};

use super::clause::{self, CheckClause};
use crate::{
    ddl::rules,
    errors::{self, Result},
    parse::{token::Tokens, view_text::definition::of_definition},
    plan::rules::{
        failures, functional,
        read::{names, parse},
    },
};

/// A part of ALTER TABLE that is about constraints.
#[derive(Clone, Debug)]
pub enum CheckStep {
    Add(CheckClause),
    /// The flag: DROP CONSTRAINT, which may mean something else.
    Drop(String, bool),
    Enforce {
        name: String,
        enforced: bool,
        any: bool,
    },
}

/// `CHECK name` or `CONSTRAINT name` behind DROP.
pub fn drop(t: &mut Tokens) -> Result<Option<CheckStep>> {
    let any = t.peek_word("constraint");
    if !t.word("check") && !t.word("constraint") {
        return Ok(None);
    }
    Ok(Some(CheckStep::Drop(t.identifier()?, any)))
}

/// `CHECK name [NOT] ENFORCED` behind ALTER.
pub fn enforce(t: &mut Tokens) -> Result<Option<CheckStep>> {
    let any = t.peek_word("constraint");
    if !t.word("check") && !t.word("constraint") {
        return Ok(None);
    }
    let name = t.identifier()?;
    let enforced = clause::enforced(t)?.ok_or_else(|| t.error())?;
    Ok(Some(CheckStep::Enforce { name, enforced, any }))
}

/// The unique index that DROP CONSTRAINT means.
pub fn dropped_index(table: &TableSchema, step: &CheckStep) -> Option<String> {
    let CheckStep::Drop(name, true) = step else { return None };
    let index = table.indexes.iter().find(|index| index.unique && index.name.eq_ignore_ascii_case(name))?;
    find(&table.checks, name, true).is_err().then(|| index.name.clone())
}

fn find(checks: &[CheckDef], name: &str, any: bool) -> Result<usize> {
    let found = checks.iter().position(|check| check.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| if any { failures::unknown_constraint(name) } else { failures::unknown_check(name) })
}

fn names_column(text: &str, column: &str) -> Result<bool> {
    Ok(names(text)?.iter().any(|name| name.eq_ignore_ascii_case(column)))
}

/// What a statement makes of the expressions of a table.
#[derive(Debug)]
pub struct Work {
    checks: Vec<CheckDef>,
    /// As they were.
    before: Vec<CheckDef>,
    added: Vec<CheckClause>,
}

impl Work {
    /// Takes away what is dropped first, so that columns may go with it.
    pub fn new<'s>(table: &TableSchema, steps: impl Iterator<Item = &'s CheckStep>) -> Result<Work> {
        let mut work = Work { checks: table.checks.clone(), before: table.checks.clone(), added: Vec::new() };
        for step in steps {
            match step {
                CheckStep::Add(clause) => work.added.push(clause.clone()),
                CheckStep::Drop(name, any) => {
                    let at = find(&work.checks, name, *any)?;
                    work.checks.remove(at);
                }
                CheckStep::Enforce { name, enforced, any } => {
                    let at = find(&work.checks, name, *any)?;
                    let check = &mut work.checks[at];
                    check.enforced = match (enforced, check.enforced) {
                        (false, _) => Enforced::No,
                        (true, Enforced::Yes) => Enforced::Yes,
                        (true, _) => Enforced::Validating,
                    };
                }
            }
        }
        Ok(work)
    }

    /// A column gets another name, or goes; a constraint that is about it alone goes with it.
    ///
    /// # Errors
    /// 3108, 3766, 3959: an expression reads it.
    pub fn lose(&mut self, table: &TableSchema, columns: &[(Column, Source)], name: &str, goes: bool) -> Result<()> {
        for (column, _) in columns.iter().filter(|(c, _)| !c.name.eq_ignore_ascii_case(name)) {
            if let Some(generated) = &column.generated
                && names_column(&generated.text, name)?
            {
                return Err(match functional::is_part(column) {
                    true => failures::used_by_key_part(name),
                    false => failures::used_by_generated(name),
                });
            }
            if let DefaultValue::Expression(text) = &column.default
                && names_column(text, name)?
            {
                return Err(failures::used_by_default(name, &table.name));
            }
        }
        let mut kept = Vec::new();
        for check in std::mem::take(&mut self.checks) {
            let read = names(&check.text)?;
            let is_read = read.iter().any(|n| n.eq_ignore_ascii_case(name));
            let is_other_read = read.iter().any(|n| !n.eq_ignore_ascii_case(name));
            if is_read && (!goes || is_other_read) {
                return Err(failures::used_by_check(&check.name, name));
            }
            if !is_read {
                kept.push(check);
            }
        }
        self.checks = kept;
        Ok(())
    }

    /// Whether the rows that are there may look otherwise to an expression when a column has another type.
    pub fn reads(&self, columns: &[(Column, Source)], name: &str) -> Result<bool> {
        let of_columns = columns.iter().filter_map(|(c, _)| match (&c.generated, &c.default) {
            (Some(generated), _) => Some(&generated.text),
            (None, DefaultValue::Expression(text)) => Some(text),
            _ => None,
        });
        for text in self.checks.iter().map(|check| &check.text).chain(of_columns) {
            if names_column(text, name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A key part reads it, whose type follows from that of the column.
    pub fn is_in_key_part(&self, columns: &[(Column, Source)], name: &str) -> Result<bool> {
        let mut texts = columns.iter().filter_map(|(c, _)| functional::expression(c));
        texts.try_fold(false, |found, text| Ok(found || names_column(text, name)?))
    }

    /// Writes new expressions of columns as they are kept; the constraints from now on, where they are others.
    pub fn finish(self, table: &TableSchema, columns: &mut [(Column, Source)]) -> Result<Option<Vec<CheckDef>>> {
        let list = columns.iter().map(|(column, _)| column.clone()).collect();
        let mut now = TableSchema::new(&table.database, &table.name, list, Vec::new());
        now.checks = self.checks;
        rules::columns(&mut now)?;
        for ((column, _), new) in columns.iter_mut().zip(now.columns.clone()) {
            *column = new;
        }
        rules::add_checks(&mut now, &self.added, Enforced::Validating)?;
        Ok((now.checks != self.before).then_some(now.checks))
    }
}

/// The constraints for the dictionary.
pub fn to_wire(checks: &[CheckDef]) -> ChecksChange {
    ChecksChange { checks: checks.iter().map(CheckMessage::from).collect() }
}

/// Names of those whose rows are to be looked through: all that a statement brings or enforces, none that another left.
pub fn unproven<'s>(
    checks: &[CheckDef],
    before: &[CheckDef],
    steps: impl Iterator<Item = &'s CheckStep>,
) -> Vec<String> {
    let enforced: Vec<&String> =
        steps.filter_map(|step| if let CheckStep::Enforce { name, .. } = step { Some(name) } else { None }).collect();
    let is_own = |check: &&CheckDef| {
        let name = &check.name;
        let was_open = before.iter().any(|old| old.name == *name && old.enforced == Enforced::Validating);
        check.enforced == Enforced::Validating
            && (!was_open || enforced.iter().any(|own| own.eq_ignore_ascii_case(name)))
    };
    checks.iter().filter(is_own).map(|check| check.name.clone()).collect()
}

/// A change of the constraints alone: those of these names are proven now, or are taken back to what they were.
pub fn settled(table: &TableSchema, names: &[String], proven: bool, before: &[CheckDef]) -> Vec<CheckDef> {
    let mut checks = table.checks.clone();
    checks.retain_mut(|check| {
        if !names.iter().any(|name| name.eq_ignore_ascii_case(&check.name)) {
            return true;
        }
        if proven {
            check.enforced = Enforced::Yes;
            return true;
        }
        check.enforced = Enforced::No;
        before.iter().any(|known| known.name.eq_ignore_ascii_case(&check.name))
    });
    checks
}

/// What may not stand beside constraints and generated columns in one statement.
///
/// # Errors
/// 1235.
pub fn check_company(has_rules: bool, only_adds: bool, has_indexes: bool) -> Result<()> {
    if has_rules && has_indexes {
        return Err(errors::not_supported(
            "ALTER TABLE with new constraints or generated columns beside new indexes and foreign keys",
        ));
    }
    if has_rules && !only_adds {
        return Err(errors::not_supported(
            "ALTER TABLE with new constraints or generated columns beside changes of columns",
        ));
    }
    Ok(())
}

/// MODIFY and CHANGE of a column with an expression, or that gets one.
///
/// # Errors
/// 3106; 1235 for what only a copy of the rows can do.
pub fn redefined(old: &Column, new: &Column, copies: bool) -> Result<()> {
    match (&old.generated, &new.generated) {
        (None, None) => Ok(()),
        (Some(old), Some(new)) if old.stored != new.stored => {
            Err(failures::not_of_generated("Changing the STORED status"))
        }
        (Some(old), None) if !old.stored => Err(failures::not_of_generated("Changing the STORED status")),
        (None, Some(new)) if !new.stored => Err(failures::not_of_generated("Changing the STORED status")),
        // What it had stays.
        (Some(_), None) => Ok(()),
        (Some(kept), Some(given)) if of_definition(&parse(&given.text)?)?.0 == kept.text => Ok(()),
        (_, Some(_)) if copies => Ok(()),
        (_, Some(_)) => {
            let what = format!("ALTER TABLE with another expression of column '{}': drop it and add it", new.name);
            Err(errors::not_supported(&what))
        }
    }
}
