//! Clauses of CREATE TABLE and ALTER TABLE that hold expressions, as they are written.

use apus_types::{Column, rules::Generated, schema::DefaultValue};

use crate::{
    errors::{self, Result},
    parse::token::{Tokens, expression},
};

/// `[CONSTRAINT name] CHECK (expression) [[NOT] ENFORCED]`
#[derive(Clone, Debug, PartialEq)]
pub struct CheckClause {
    pub name: Option<String>,
    /// As it was written.
    pub text: String,
    pub enforced: bool,
    /// The column that it stands behind.
    pub column: Option<String>,
}

/// CHECK and what follows, behind CONSTRAINT and its name.
pub fn check(t: &mut Tokens, name: Option<String>, column: Option<&str>) -> Result<CheckClause> {
    t.expect("check")?;
    let text = expression(t)?;
    let enforced = enforced(t)?.unwrap_or(true);
    Ok(CheckClause { name, text, enforced, column: column.map(str::to_owned) })
}

/// `[NOT] ENFORCED`
pub fn enforced(t: &mut Tokens) -> Result<Option<bool>> {
    if t.peek_word("not") && t.second_word("enforced") {
        t.skip();
        t.skip();
        return Ok(Some(false));
    }
    Ok(t.word("enforced").then_some(true))
}

/// A check among the options of a column.
pub fn of_column(t: &mut Tokens, column: &Column) -> Result<Option<CheckClause>> {
    if t.peek_word("check") {
        return check(t, None, Some(&column.name)).map(Some);
    }
    if !t.word("constraint") {
        return Ok(None);
    }
    let name = if t.peek_word("check") { None } else { Some(t.identifier()?) };
    check(t, name, Some(&column.name)).map(Some)
}

/// `[GENERATED ALWAYS] AS (expression) [VIRTUAL | STORED]`
pub fn generated(t: &mut Tokens, column: &mut Column) -> Result<bool> {
    if t.word("generated") {
        t.expect("always")?;
        t.expect("as")?;
    } else if !t.word("as") {
        return Ok(false);
    }
    if column.generated.is_some() {
        return Err(t.error());
    }
    let text = expression(t)?;
    let stored = t.word("stored");
    if !stored {
        t.word("virtual");
    }
    column.generated = Some(Generated { text, stored });
    Ok(true)
}

/// What a generated column may not have beside its expression.
///
/// # Errors
/// 1221, and 1067 for a default of a column that counts.
pub fn check_options(column: &Column) -> Result<()> {
    if column.auto_increment && matches!(column.default, DefaultValue::Expression(_)) {
        return Err(errors::invalid_default(&column.name));
    }
    if column.generated.is_none() {
        return Ok(());
    }
    let wrong = if column.default != DefaultValue::None {
        "DEFAULT"
    } else if column.auto_increment {
        "AUTO_INCREMENT"
    } else if column.on_update_now {
        "ON UPDATE"
    } else {
        return Ok(());
    };
    Err(errors::wrong_usage(wrong, "generated column"))
}
