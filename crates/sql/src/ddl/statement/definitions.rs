//! CREATE TABLE, and what stands in its parentheses: columns with their options, keys.

use apus_types::{Column, ColumnType, TableSchema, collate::Collation};

use super::{
    Ddl, assemble,
    defaults::{default_value, now, settle_default},
    if_not_exists,
};
use crate::{
    catalog::{
        full_text,
        key_parts::{self, IndexClause, KeyParts, PrimaryKey},
        visibility,
    },
    ddl::{
        create_select::{SelectClause, begins_select, check_new_name},
        foreign_key::clause::{self, Clause},
        rules::clause::CheckClause,
        table_options::table_options,
    },
    errors::{self, Result},
    parse::{
        charset::collation_named,
        column_type::{set_collation, typed},
        token::Tokens,
    },
    plan::rules,
    value::number_format,
};

pub(super) fn index_type(t: &mut Tokens) -> Result<()> {
    if t.word("using") {
        t.identifier()?;
    }
    Ok(())
}

pub(super) fn index_options(t: &mut Tokens) -> Result<bool> {
    let mut invisible = false;
    loop {
        if t.word("using") {
            t.identifier()?;
        } else if t.word("comment") {
            t.string()?;
        } else if t.word("key_block_size") {
            t.symbol('=');
            t.number()?;
        } else if let Some(said) = visibility::word(t) {
            invisible = said;
        } else {
            return Ok(invisible);
        }
    }
}

/// What stands in the parentheses of CREATE TABLE.
#[derive(Debug, Default)]
pub struct Definitions {
    pub columns: Vec<Column>,
    pub indexes: Vec<IndexClause>,
    pub primary: Option<PrimaryKey>,
    pub foreign_keys: Vec<Clause>,
    pub checks: Vec<CheckClause>,
}

impl Definitions {
    /// The next column, key or index.
    pub fn take(&mut self, t: &mut Tokens, default: Collation) -> Result<()> {
        definition(t, default, self)
    }
    /// Takes the foreign keys out; the indexes that they need stay.
    fn take_foreign_keys(&mut self) -> Result<Vec<Clause>> {
        let mut keys = std::mem::take(&mut self.foreign_keys);
        // An index without a name has the column's, in its letters.
        for name in keys.iter_mut().flat_map(|key| &mut key.columns) {
            let known = self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
            name.clone_from(known.map_or(&name.clone(), |column| &column.name));
        }
        keys.iter().try_for_each(Clause::check)?;
        let known: Vec<Vec<String>> = self.primary.iter().map(|key| key.columns.clone()).collect();
        self.indexes = clause::indexes(std::mem::take(&mut self.indexes), &keys, &known);
        Ok(keys)
    }
    pub fn parse(t: &mut Tokens, default: Collation) -> Result<Definitions> {
        let mut made = Definitions::default();
        loop {
            made.take(t, default)?;
            if !t.symbol(',') {
                break;
            }
        }
        t.expect_symbol(')')?;
        Ok(made)
    }
}

pub(super) fn create_table(t: &mut Tokens, text: &str, default: Collation) -> Result<Ddl> {
    let if_not_exists = if_not_exists(t)?;
    let name = t.name()?;
    if t.word("like") {
        return Ok(Ddl::CreateTableLike { name, like: t.name()?, if_not_exists });
    }
    let has_definitions = t.peek_symbol('(') && !begins_select(t);
    if has_definitions {
        t.expect_symbol('(')?;
    }
    if has_definitions && t.word("like") {
        let like = t.name()?;
        t.expect_symbol(')')?;
        return Ok(Ddl::CreateTableLike { name, like, if_not_exists });
    }
    // The table's collation stands behind the columns that it applies to.
    let default = t.table_characters(has_definitions)?.collation(default)?;
    let mut definitions = if has_definitions { Definitions::parse(t, default)? } else { Definitions::default() };
    let mut options = TableSchema::new("", &name.1, Vec::new(), Vec::new());
    options.collation = default;
    let auto_increment = table_options(t, &mut options)?;
    if !t.at_end() {
        let clause = SelectClause::parse(t, text, name, if_not_exists, definitions, options, auto_increment)?;
        return Ok(Ddl::CreateTableSelect(Box::new(clause)));
    }
    if !has_definitions {
        return Err(errors::no_columns());
    }
    let foreign_keys = definitions.take_foreign_keys()?;
    let table = Box::new(assemble(&options, definitions)?);
    Ok(Ddl::CreateTable { name, if_not_exists, table, foreign_keys, auto_increment })
}

fn definition(t: &mut Tokens, default: Collation, made: &mut Definitions) -> Result<()> {
    let Definitions { columns, indexes, primary, foreign_keys, checks } = made;
    let mut constraint = None;
    if t.word("constraint")
        && !t.peek_word("primary")
        && !t.peek_word("unique")
        && !t.peek_word("foreign")
        && !t.peek_word("check")
    {
        constraint = Some(t.identifier()?);
    }
    if t.word("primary") {
        t.expect("key")?;
        index_type(t)?;
        let parts = key_parts::parse(t)?;
        if index_options(t)? {
            return Err(visibility::primary_key());
        }
        if !parts.expressions.is_empty() {
            return Err(rules::failures::primary_key_part());
        }
        if !key_parts::are_cut(&parts.lengths) {
            let KeyParts { columns, descending, .. } = parts;
            return set_primary(primary, PrimaryKey { columns, descending });
        }
        let name = Some(key_parts::PRIMARY.to_owned());
        indexes.push(IndexClause { name, unique: true, ..IndexClause::of(parts) });
        return Ok(());
    }
    if t.word("unique") {
        let _ = t.word("index") || t.word("key");
        let name = if t.peek_symbol('(') || t.peek_word("using") { constraint } else { Some(t.identifier()?) };
        key_parts::check_name(name.as_deref())?;
        index_type(t)?;
        let parts = key_parts::parse(t)?;
        let invisible = index_options(t)?;
        indexes.push(IndexClause { name, unique: true, invisible, ..IndexClause::of(parts) });
        return Ok(());
    }
    if t.word("foreign") {
        foreign_keys.push(Clause::of_table(t, constraint, indexes.len())?);
        return Ok(());
    }
    if t.peek_word("check") {
        checks.push(crate::ddl::rules::clause::check(t, constraint, None)?);
        return Ok(());
    }
    if t.word("fulltext") {
        indexes.push(full_text::clause(t)?);
        return Ok(());
    }
    if t.word("spatial") {
        return Err(errors::not_supported("SPATIAL indexes"));
    }
    if t.word("index") || t.word("key") {
        let name = if t.peek_symbol('(') || t.peek_word("using") { None } else { Some(t.identifier()?) };
        key_parts::check_name(name.as_deref())?;
        index_type(t)?;
        let parts = key_parts::parse(t)?;
        let invisible = index_options(t)?;
        indexes.push(IndexClause { name, invisible, ..IndexClause::of(parts) });
        return Ok(());
    }
    let name = t.identifier()?;
    check_new_name(&name)?;
    let is_serial = t.peek_word("serial");
    let mut column = typed(t, &name, default)?;
    if is_serial {
        make_serial(&mut column, indexes);
    }
    column_options(t, &mut column, indexes, primary, checks)?;
    if t.word("references") {
        foreign_keys.push(Clause::of_column(t, &name, indexes.len())?);
    }
    crate::ddl::rules::clause::check_options(&column)?;
    let counts = matches!(column.ty, ColumnType::Int { .. } | ColumnType::Float | ColumnType::Double);
    if column.auto_increment && !counts {
        let text = format!("Incorrect column specifier for column '{name}'");
        return Err(crate::wire::SqlError::new(1063, b"42000", text));
    }
    number_format::check(&column)?;
    settle_default(&mut column)?;
    columns.push(column);
    Ok(())
}

fn column_options(
    t: &mut Tokens,
    c: &mut Column,
    indexes: &mut Vec<IndexClause>,
    primary: &mut Option<PrimaryKey>,
    checks: &mut Vec<CheckClause>,
) -> Result<()> {
    // Nothing stands before the expression of a generated column but its collation.
    let mut is_first = true;
    loop {
        if is_first && crate::ddl::rules::clause::generated(t, c)? {
            is_first = false;
            continue;
        }
        is_first &= t.peek_word("collate");
        if t.word("not") {
            t.expect("null")?;
            c.nullable = false;
        } else if t.word("null") {
            c.nullable = true;
        } else if t.word("default") {
            c.default = default_value(t)?.of(c)?;
        } else if t.word("auto_increment") {
            c.auto_increment = true;
            c.nullable = false;
        } else if t.word("serial") {
            t.expect("default")?;
            t.expect("value")?;
            make_serial(c, indexes);
        } else if t.word("on") {
            t.expect("update")?;
            now(t)?;
            c.on_update_now = true;
        } else if t.word("comment") {
            c.comment = t.string()?;
        } else if t.word("primary") {
            t.expect("key")?;
            set_primary(primary, PrimaryKey::of_column(&c.name))?;
        } else if t.word("unique") {
            t.word("key");
            indexes.push(unique(c));
        } else if t.word("key") {
            set_primary(primary, PrimaryKey::of_column(&c.name))?;
        } else if let Some(check) = crate::ddl::rules::clause::of_column(t, c)? {
            checks.push(check);
        } else if t.word("collate") {
            set_collation(c, collation_named(&t.identifier()?)?)?;
        } else if t.word("column_format") || t.word("storage") {
            t.identifier()?;
        } else if let Some(invisible) = visibility::word(t) {
            c.invisible = invisible;
        } else {
            return Ok(());
        }
    }
}

pub(super) fn unique(c: &Column) -> IndexClause {
    IndexClause { columns: vec![c.name.clone()], unique: true, ..IndexClause::default() }
}

/// NOT NULL AUTO_INCREMENT UNIQUE, which the type SERIAL and the words SERIAL DEFAULT VALUE stand for.
fn make_serial(c: &mut Column, indexes: &mut Vec<IndexClause>) {
    (c.auto_increment, c.nullable) = (true, false);
    indexes.push(unique(c));
}

pub(super) fn set_primary(primary: &mut Option<PrimaryKey>, key: PrimaryKey) -> Result<()> {
    match primary.replace(key) {
        None => Ok(()),
        Some(_) => Err(errors::multiple_primary()),
    }
}
