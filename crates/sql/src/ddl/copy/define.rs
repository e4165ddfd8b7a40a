//! The definition of a table as a statement makes it, from the one that it has.
//!
//! It is put together from columns and keys as CREATE TABLE does it, so the same is refused. What the statement does not name is taken over: indexes by the names of their columns, constraints, foreign keys, options.

use apus_types::{
    Column, ColumnType, IndexDef, IndexNo, TableSchema,
    foreign_key::ForeignKey,
    schema::{DefaultValue, IndexState},
};

use crate::{
    catalog::{
        Catalog,
        foreign_key::ParentKey,
        full_text,
        key_parts::{self, IndexClause, PrimaryKey},
    },
    ddl::{
        alter::{self, Anew, alter_clause::AlterClause},
        foreign_key,
        statement::{self, definitions::Definitions},
    },
    errors::{self, Result},
    plan::rules::functional,
    session::Session,
    wire::SqlError,
};

/// A table to be made in the place of another.
pub struct Remade {
    pub table: TableSchema,
    /// Of each column the one of the old table that its values come from.
    pub from: Vec<Option<u16>>,
    pub foreign_keys: Vec<ForeignKey>,
}

fn cant_drop(name: &str) -> SqlError {
    SqlError::new(1091, b"42000", format!("Can't DROP '{name}'; check that column/key exists"))
}

/// What `clause` makes of a table; `read` is the same, read with the table's collation.
///
/// # Errors
/// What MySQL refuses of it, and 1235.
pub fn remade(
    session: &Session,
    catalog: &Catalog,
    old: &TableSchema,
    (clause, read): (&AlterClause, &AlterClause),
) -> Result<Remade> {
    if !clause.foreign_keys.is_empty() {
        return Err(errors::not_supported("ALTER TABLE with a new foreign key beside changes that copy the table"));
    }
    let anew = alter::anew(session, old, read)?;
    let checks = session.env.variables.foreign_key_checks;
    if old.is_constrained() {
        clause.check_loss(catalog, old, !checks)?;
    }
    check_keys(catalog, old, read, &anew)?;
    let foreign_keys = kept_keys(old, clause)?;
    let options = read.whole.options(old)?;
    let mut columns: Vec<(Column, Option<u16>)> =
        anew.columns.iter().filter(|c| !c.0.name.starts_with('#')).cloned().collect();
    for (column, from) in &mut columns {
        let is_said = read.redefined().any(|(_, new)| new.name.eq_ignore_ascii_case(&column.name));
        if from.is_some() && !is_said {
            read.whole.converted(column, options.collation);
        }
    }
    let is_counted = |c: &Column| c.auto_increment;
    if columns.iter().filter(|(c, _)| is_counted(c)).count() > 1 {
        return Err(no_key_of_counter());
    }
    let name_of = |at: u16| columns.iter().find(|(_, from)| *from == Some(at)).map(|(c, _)| c.name.clone());
    let primary = primary(old, read, name_of)?;
    let mut indexes = kept_indexes(old, read, &anew, &columns)?;
    indexes.extend(read.new_indexes().iter().chain(read.full_texts()).cloned());
    let has_part = indexes.iter().any(|i| i.name.as_deref() == Some(key_parts::PRIMARY));
    if has_part && primary.is_some() {
        return Err(errors::multiple_primary());
    }
    let list = columns.iter().map(|(column, _)| column.clone()).collect();
    let definitions = Definitions { columns: list, indexes, primary, ..Definitions::default() };
    let mut table = statement::assemble(&options, definitions)?;
    table.database.clone_from(&old.database);
    for &column in &table.primary_key {
        let column = &mut table.columns[usize::from(column)];
        if column.default == DefaultValue::Null {
            column.default = DefaultValue::None;
        }
    }
    table.checks = anew.checks;
    table.triggers.clone_from(&old.triggers);
    table.refresh();
    check_counter(&table)?;
    foreign_key::check_new_table(catalog, &table, checks)?;
    let mut from: Vec<Option<u16>> = columns.iter().map(|(_, from)| *from).collect();
    // What is computed for key parts stands behind them.
    from.resize(table.columns.len() - usize::from(table.hidden_key), None);
    if table.hidden_key {
        from.push(old.primary_key.first().copied().filter(|_| old.hidden_key));
    }
    let foreign_keys = foreign_keys.into_iter().map(|key| moved(key, old, &table, name_of)).collect::<Result<_>>()?;
    Ok(Remade { table, from, foreign_keys })
}

fn primary(
    old: &TableSchema,
    read: &AlterClause,
    name_of: impl Fn(u16) -> Option<String>,
) -> Result<Option<PrimaryKey>> {
    let has_part = old.indexes.iter().any(|index| index.name == key_parts::PRIMARY);
    let mut kept = PrimaryKey::default();
    for (at, name) in old.primary_key.iter().enumerate().filter_map(|(at, &c)| Some((at, name_of(c)?))) {
        kept.descending.extend(old.descends(IndexNo(0), at).then_some(kept.columns.len() as u16));
        kept.columns.push(name);
    }
    if old.hidden_key {
        kept = PrimaryKey::default();
    }
    if read.whole.drop_primary {
        if old.hidden_key && !has_part {
            return Err(cant_drop(key_parts::PRIMARY));
        }
        kept = PrimaryKey::default();
    }
    match &read.whole.primary {
        Some(_) if !kept.columns.is_empty() || has_part && !read.whole.drop_primary => Err(errors::multiple_primary()),
        Some(new) => Ok(Some(new.clone())),
        None => Ok((!kept.columns.is_empty()).then_some(kept)),
    }
}

/// Indexes that stay, with the columns that are left of them.
fn kept_indexes(
    old: &TableSchema,
    read: &AlterClause,
    anew: &Anew,
    columns: &[(Column, Option<u16>)],
) -> Result<Vec<IndexClause>> {
    let renames = &read.whole.rename_indexes;
    for (from, to) in renames {
        let has = |name: &String| {
            old.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name)) || full_text::has(old, name)
        };
        if !has(from) {
            let text = format!("Key '{from}' doesn't exist in table '{}'", old.name);
            return Err(SqlError::new(1176, b"42000", text));
        }
        if has(to) && !from.eq_ignore_ascii_case(to) {
            return Err(SqlError::new(1061, b"42000", format!("Duplicate key name '{to}'")));
        }
        key_parts::check_name(Some(to))?;
    }
    let name_of = |at: u16| columns.iter().find(|(_, from)| *from == Some(at)).map(|(now, _)| now.name.clone());
    let mut kept = Vec::new();
    for index in &old.indexes {
        let is_gone = anew.drop_indexes.iter().any(|name| name.eq_ignore_ascii_case(&index.name))
            || read.whole.drop_primary && index.name == key_parts::PRIMARY;
        if is_gone || index.state != IndexState::Ready && index.unique {
            continue;
        }
        kept.push(kept_index(old, index, columns));
    }
    let is_gone = |name: &str| anew.drop_indexes.iter().any(|gone| gone.eq_ignore_ascii_case(name));
    let full_texts = old.full_texts.iter().filter(|index| !is_gone(&index.name));
    kept.extend(full_texts.map(|index| full_text::as_clause(index, name_of)));
    kept.retain(|clause| !clause.columns.is_empty());
    for clause in &mut kept {
        let name = clause.name.clone().unwrap_or_default();
        let is_in = |list: &[String]| list.iter().any(|other| other.eq_ignore_ascii_case(&name));
        clause.invisible = !is_in(&anew.shown.0) && (clause.invisible || is_in(&anew.shown.1));
        if let Some((_, to)) = renames.iter().find(|(from, _)| from.eq_ignore_ascii_case(&name)) {
            clause.name = Some(to.clone());
        }
    }
    Ok(kept)
}

fn kept_index(old: &TableSchema, index: &IndexDef, columns: &[(Column, Option<u16>)]) -> IndexClause {
    let (mut names, mut lengths, mut descending) = (Vec::new(), Vec::new(), Vec::new());
    let mut expressions = Vec::new();
    for (at, column) in index.columns.iter().enumerate() {
        if let Some(text) = functional::expression(&old.columns[usize::from(*column)]) {
            let place = names.len() as u16;
            descending.extend(old.descends(index.no, at).then_some(place));
            expressions.push((place, text.to_owned()));
            names.push(String::new());
            lengths.push(0);
            continue;
        }
        let Some((now, _)) = columns.iter().find(|(_, from)| *from == Some(*column)) else { continue };
        descending.extend(old.descends(index.no, at).then_some(names.len() as u16));
        names.push(now.name.clone());
        let length = index.prefix(at).map_or(0, |n| u32::try_from(n).unwrap_or(0));
        // A beginning that is all of it now.
        let whole = match now.ty {
            ColumnType::Char { length, .. } | ColumnType::VarChar { length, .. } => u32::from(length),
            ColumnType::Binary { length } | ColumnType::VarBinary { length } => u32::from(length),
            ColumnType::Text { .. } | ColumnType::Blob { .. } => u32::MAX,
            _ => 0,
        };
        lengths.push(if length < whole { length } else { 0 });
    }
    let invisible = !old.is_visible(index);
    let name = Some(index.name.clone());
    let unique = index.unique;
    IndexClause { name, columns: names, lengths, descending, expressions, unique, invisible, ..IndexClause::default() }
}

/// What foreign keys need of the primary key, and of the names of columns.
///
/// # Errors
/// 1553; 1846: a column of theirs gets another name.
fn check_keys(catalog: &Catalog, old: &TableSchema, read: &AlterClause, anew: &Anew) -> Result<()> {
    let Some(rules) = catalog.rules(old.id) else { return Ok(()) };
    let own = rules.parents.iter().flat_map(|r| r.key.columns.iter().copied());
    let parents = rules.children.iter().filter_map(|r| r.parent.as_ref());
    for column in own.chain(parents.clone().flat_map(|p| p.columns.iter().copied())) {
        let name = &old.columns[usize::from(column)].name;
        if anew.columns.iter().any(|(now, from)| *from == Some(column) && now.name != *name) {
            let text = "ALGORITHM=COPY is not supported. Reason: Columns participating in a foreign key are renamed. Try ALGORITHM=INPLACE.";
            return Err(match read.whole.is_copied_by_mysql(old, read) {
                true => SqlError::new(1846, b"0A000", text),
                false => errors::not_supported(
                    "ALTER TABLE that renames a column of a foreign key beside changes that copy the table: rename it in a statement of its own",
                ),
            });
        }
    }
    let mut needed = parents.filter(|p| p.by == ParentKey::Primary);
    let is_gone = read.whole.drop_primary && read.whole.primary.is_none();
    if is_gone && needed.next().is_some() { Err(errors::index_needed(key_parts::PRIMARY)) } else { Ok(()) }
}

/// Foreign keys that stay.
fn kept_keys(old: &TableSchema, clause: &AlterClause) -> Result<Vec<ForeignKey>> {
    let mut left = old.foreign_keys.clone();
    for (name, is_constraint) in &clause.drop_keys {
        match left.iter().position(|key| key.name.eq_ignore_ascii_case(name)) {
            Some(at) => _ = left.remove(at),
            None if *is_constraint => return Err(errors::no_constraint(name)),
            None => return Err(errors::cannot_drop_foreign_key(name)),
        }
    }
    Ok(left)
}

/// A foreign key of the old table as one of the new.
fn moved(
    mut key: ForeignKey,
    old: &TableSchema,
    new: &TableSchema,
    name_of: impl Fn(u16) -> Option<String>,
) -> Result<ForeignKey> {
    let lost = || errors::internal("a column of a foreign key is gone");
    let now = |at: u16| name_of(at).and_then(|name| new.column_no(&name)).ok_or_else(lost);
    if key.refers_to(&old.database, &old.name) {
        for name in &mut key.parent_columns {
            let at = old.column_no(name).ok_or_else(lost)?;
            name.clone_from(&new.columns[usize::from(now(at)?)].name);
        }
    }
    key.columns = key.columns.iter().map(|&at| now(at)).collect::<Result<_>>()?;
    Ok(key)
}

fn no_key_of_counter() -> SqlError {
    let text = "Incorrect table definition; there can be only one auto column and it must be defined as a key";
    SqlError::new(1075, b"42000", text)
}

/// # Errors
/// 1075: a column counts that no key begins with.
fn check_counter(table: &TableSchema) -> Result<()> {
    let counts = |c: &u16| {
        let column = &table.columns[usize::from(*c)];
        column.auto_increment && !column.name.starts_with('#')
    };
    let Some(column) = (0..table.columns.len() as u16).find(counts) else { return Ok(()) };
    let mut keys = table.indexes.iter().map(|index| &index.columns).chain([&table.primary_key]);
    if keys.any(|key| key.first() == Some(&column)) { Ok(()) } else { Err(no_key_of_counter()) }
}
