//! Data definition: CREATE, DROP, ALTER, TRUNCATE and RENAME, parsed from tokens into schema changes.

pub mod defaults;
pub mod definitions;

use self::definitions::{Definitions, create_table, index_options, index_type, set_primary};
use super::{
    alter::alter_clause::{self, AlterClause},
    create_select::SelectClause,
    create_view::ViewClause,
    foreign_key::clause::Clause,
};
use crate::{
    catalog::{
        HIDDEN_KEY, full_text,
        key_parts::{self, IndexClause, PrimaryKey},
        visibility,
    },
    errors::{self, Result},
    parse::{
        charset::Characters,
        token::{Name, Tokens},
    },
    plan::rules,
};
use apus_types::{Column, ColumnType, IndexDef, IndexNo, IndexState, TableSchema, collate::Collation};

#[derive(Debug)]
pub enum Ddl {
    CreateDatabase {
        name: String,
        if_not_exists: bool,
        collation: Collation,
    },
    /// Without a name: the session's.
    AlterDatabase {
        name: Option<String>,
        characters: Characters,
    },
    DropDatabase {
        name: String,
        if_exists: bool,
    },
    CreateTable {
        name: Name,
        if_not_exists: bool,
        table: Box<TableSchema>,
        foreign_keys: Vec<Clause>,
        /// First value of AUTO_INCREMENT.
        auto_increment: Option<u64>,
    },
    CreateTableLike {
        name: Name,
        like: Name,
        if_not_exists: bool,
    },
    CreateTableSelect(Box<SelectClause>),
    /// What CREATE TABLE would make, for the session alone.
    CreateTemporary(Box<Ddl>),
    DropTemporary {
        names: Vec<Name>,
        if_exists: bool,
    },
    DropTables {
        names: Vec<Name>,
        if_exists: bool,
    },
    Truncate(Name),
    Rename(Vec<(Name, Name)>),
    /// ALTER TABLE ... RENAME, which renames no view.
    RenameTable(Name, Name),
    CreateView(Box<ViewClause>),
    DropViews {
        names: Vec<Name>,
        if_exists: bool,
    },
    AddIndexes {
        table: Name,
        indexes: Vec<IndexClause>,
        drops: Vec<String>,
    },
    Alter(Box<AlterClause>),
}

impl Ddl {
    /// Tables that it changes, or that others refer to from now on.
    pub fn changed_tables(&self) -> Vec<Name> {
        let parents = |keys: &[Clause]| keys.iter().map(|key| key.parent.clone()).collect::<Vec<_>>();
        match self {
            Ddl::CreateTable { name, foreign_keys, .. } => [parents(foreign_keys), vec![name.clone()]].concat(),
            Ddl::CreateTableLike { name, .. } => vec![name.clone()],
            Ddl::CreateTableSelect(clause) => vec![clause.name.clone()],
            Ddl::DropTables { names, .. } => names.clone(),
            Ddl::Truncate(name) => vec![name.clone()],
            Ddl::Rename(list) => list.iter().flat_map(|(from, to)| [from.clone(), to.clone()]).collect(),
            Ddl::RenameTable(from, to) => vec![from.clone(), to.clone()],
            Ddl::AddIndexes { table, .. } => vec![table.clone()],
            Ddl::Alter(clause) => [parents(&clause.foreign_keys), vec![clause.table.clone()]].concat(),
            Ddl::CreateTemporary(_)
            | Ddl::DropTemporary { .. }
            | Ddl::CreateDatabase { .. }
            | Ddl::AlterDatabase { .. }
            | Ddl::DropDatabase { .. }
            | Ddl::CreateView(_)
            | Ddl::DropViews { .. } => Vec::new(),
        }
    }
}

/// Parses a definition statement; `None` when it is none.
///
/// `default`: the collation of a new database or table that names none.
pub fn parse(t: &mut Tokens, text: &str, default: Collation) -> Result<Option<Ddl>> {
    let ddl = if t.word("create") {
        create(t, text, default)?
    } else if t.word("drop") {
        drop(t)?
    } else if t.word("truncate") {
        t.word("table");
        Ddl::Truncate(t.name()?)
    } else if t.word("rename") {
        t.expect("table")?;
        let mut list = Vec::new();
        loop {
            let from = t.name()?;
            t.expect("to")?;
            list.push((from, t.name()?));
            if !t.symbol(',') {
                break;
            }
        }
        Ddl::Rename(list)
    } else if t.word("alter") {
        alter(t, text)?
    } else {
        return Ok(None);
    };
    t.end()?;
    Ok(Some(ddl))
}

fn if_not_exists(t: &mut Tokens) -> Result<bool> {
    if !t.word("if") {
        return Ok(false);
    }
    t.expect("not")?;
    t.expect("exists")?;
    Ok(true)
}
fn if_exists(t: &mut Tokens) -> Result<bool> {
    if !t.word("if") {
        return Ok(false);
    }
    t.expect("exists")?;
    Ok(true)
}

/// Where CREATE looks for the default of [`parse`]: the database of a new table, or what the session says of new databases.
pub enum Inherits {
    Session,
    Database(Option<String>),
}

impl Inherits {
    pub fn of(text: &str) -> Option<Inherits> {
        let mut t = Tokens::new(text);
        if !t.word("create") {
            return None;
        }
        if t.word("database") || t.word("schema") {
            return Some(Inherits::Session);
        }
        t.word("temporary");
        if !t.word("table") || if_not_exists(&mut t).is_err() {
            return None;
        }
        t.name().ok().map(|(database, _)| Inherits::Database(database))
    }
}

/// To the end of CREATE or ALTER DATABASE.
fn database_options(t: &mut Tokens) -> Result<Characters> {
    let mut characters = Characters::default();
    while !t.at_end() {
        t.word("default");
        if t.word("encryption") {
            t.symbol('=');
            if !t.string()?.eq_ignore_ascii_case("n") {
                return Err(errors::not_supported("ENCRYPTION of a database"));
            }
        } else if !characters.take(t)? {
            return Err(t.error());
        }
    }
    Ok(characters)
}

fn create(t: &mut Tokens, text: &str, default: Collation) -> Result<Ddl> {
    if let Some(view) = ViewClause::parse(t, text, false)? {
        return Ok(Ddl::CreateView(Box::new(view)));
    }
    if t.word("database") || t.word("schema") {
        let if_not_exists = if_not_exists(t)?;
        let name = t.identifier()?;
        let characters = database_options(t)?;
        let collation = characters.collation(default)?;
        return Ok(Ddl::CreateDatabase { name, if_not_exists, collation });
    }
    if t.word("table") {
        return create_table(t, text, default);
    }
    if t.word("temporary") {
        t.expect("table")?;
        return Ok(Ddl::CreateTemporary(Box::new(create_table(t, text, default)?)));
    }
    for (word, what) in [
        ("or", "CREATE OR REPLACE"),
        ("user", "CREATE USER"),
        ("role", "roles"),
        ("spatial", "SPATIAL indexes"),
        ("definer", "DEFINER"),
    ] {
        if t.word(word) {
            return Err(errors::not_supported(what));
        }
    }
    if t.word("fulltext") {
        let (table, index) = full_text::created(t)?;
        skip_way(t)?;
        return Ok(Ddl::AddIndexes { table, indexes: vec![index], drops: Vec::new() });
    }
    let unique = t.word("unique");
    t.expect("index")?;
    let name = Some(t.identifier()?);
    key_parts::check_name(name.as_deref())?;
    index_type(t)?;
    t.expect("on")?;
    let table = t.name()?;
    let parts = key_parts::parse(t)?;
    let invisible = index_options(t)?;
    skip_way(t)?;
    let index = IndexClause { name, unique, invisible, ..IndexClause::of(parts) };
    Ok(Ddl::AddIndexes { table, indexes: vec![index], drops: Vec::new() })
}

/// ALGORITHM and LOCK of CREATE INDEX.
fn skip_way(t: &mut Tokens) -> Result<()> {
    while t.word("algorithm") || t.word("lock") {
        t.symbol('=');
        t.identifier()?;
    }
    Ok(())
}

fn drop(t: &mut Tokens) -> Result<Ddl> {
    if t.word("database") || t.word("schema") {
        let if_exists = if_exists(t)?;
        return Ok(Ddl::DropDatabase { name: t.identifier()?, if_exists });
    }
    if t.word("index") {
        let name = t.identifier()?;
        t.expect("on")?;
        let table = t.name()?;
        if name.eq_ignore_ascii_case(key_parts::PRIMARY) {
            return Ok(Ddl::Alter(Box::new(AlterClause::of_primary_dropped(table))));
        }
        return Ok(Ddl::AddIndexes { table, indexes: Vec::new(), drops: vec![name] });
    }
    if t.word("view") {
        let if_exists = if_exists(t)?;
        let mut names = vec![t.name()?];
        while t.symbol(',') {
            names.push(t.name()?);
        }
        let _ = t.word("restrict") || t.word("cascade");
        return Ok(Ddl::DropViews { names, if_exists });
    }
    let is_temporary = t.word("temporary");
    if !t.word("table") && !t.word("tables") {
        return Err(if is_temporary { t.error() } else { errors::not_supported("this form of DROP") });
    }
    let if_exists = if_exists(t)?;
    let mut names = vec![t.name()?];
    while t.symbol(',') {
        names.push(t.name()?);
    }
    let _ = t.word("restrict") || t.word("cascade");
    Ok(match is_temporary {
        true => Ddl::DropTemporary { names, if_exists },
        false => Ddl::DropTables { names, if_exists },
    })
}

fn alter(t: &mut Tokens, text: &str) -> Result<Ddl> {
    if let Some(view) = ViewClause::parse(t, text, true)? {
        return Ok(Ddl::CreateView(Box::new(view)));
    }
    if t.word("database") || t.word("schema") {
        let is_option = ["default", "character", "collate", "read"].iter().any(|word| t.peek_word(word));
        let name = if is_option { None } else { Some(t.identifier()?) };
        if t.at_end() {
            return Err(t.error());
        }
        if t.peek_word("read") {
            return Err(errors::not_supported("READ ONLY of a database"));
        }
        return Ok(Ddl::AlterDatabase { name, characters: database_options(t)? });
    }
    alter_table(t, text, Collation::default())
}

/// `default`: the collation of columns that name none.
fn alter_table(t: &mut Tokens, text: &str, default: Collation) -> Result<Ddl> {
    t.expect("table")?;
    let table = t.name()?;
    if t.peek_word("rename") && !["column", "index", "key"].iter().any(|word| t.second_word(word)) {
        t.skip();
        let _ = t.word("to") || t.word("as");
        return Ok(Ddl::RenameTable(table, t.name()?));
    }
    Ok(Ddl::Alter(Box::new(alter_clause::parse(t, text, table, default)?)))
}

/// ALTER TABLE once more, with the collation of its table.
pub fn parse_alter(text: &str, default: Collation) -> Result<AlterClause> {
    let mut t = Tokens::new(text);
    t.expect("alter")?;
    match alter_table(&mut t, text, default)? {
        Ddl::Alter(clause) => Ok(*clause),
        _ => Err(errors::internal("ALTER TABLE is read twice")),
    }
}

/// A table of these columns and indexes, with the options of another.
pub fn assemble(options: &TableSchema, definitions: Definitions) -> Result<TableSchema> {
    let Definitions { mut columns, mut indexes, mut primary, checks, .. } = definitions;
    let missing = errors::no_key_column;
    let find = |columns: &[Column], name: &str| {
        columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)).map(|i| i as u16).ok_or_else(|| missing(name))
    };
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.name.eq_ignore_ascii_case(&column.name)) {
            let text = format!("Duplicate column name '{}'", column.name);
            return Err(crate::wire::SqlError::new(1060, b"42S21", text));
        }
    }
    take_primary(&mut columns, &mut indexes, &mut primary)?;
    rules::functional::settle(&mut columns, &mut indexes, &options.name)?;
    let hidden = primary.is_none();
    let descending = primary.as_ref().map(|key| key.descending.clone()).unwrap_or_default();
    let primary_key = match primary {
        Some(PrimaryKey { columns: names, .. }) => {
            let key = names.iter().map(|n| find(&columns, n)).collect::<Result<Vec<_>>>()?;
            key.iter().for_each(|&c| columns[usize::from(c)].nullable = false);
            key
        }
        None => {
            columns.push(Column {
                nullable: false,
                auto_increment: true,
                ..Column::new(HIDDEN_KEY, ColumnType::Int { bits: 64, unsigned: true })
            });
            vec![columns.len() as u16 - 1]
        }
    };
    if columns.iter().filter(|c| c.auto_increment && !c.name.starts_with('#')).count() > 1 {
        let text = "Incorrect table definition; there can be only one auto column and it must be defined as a key";
        return Err(crate::wire::SqlError::new(1075, b"42000", text));
    }
    let mut table = TableSchema::new("", &options.name, columns, primary_key);
    table.hidden_key = hidden;
    table.descending = descending.into_iter().map(|at| (IndexNo(0), at)).collect();
    key_parts::prefixes(&table, &table.primary_key, &[], None)?;
    table.collation = options.collation;
    table.comment.clone_from(&options.comment);
    table.engine.clone_from(&options.engine);
    table.durability = options.durability;
    for clause in &indexes {
        if clause.full_text {
            let index = full_text::defined(&table, clause)?;
            table.full_texts.push(index);
            continue;
        }
        let key = clause.columns.iter().map(|n| find(&table.columns, n)).collect::<Result<Vec<_>>>()?;
        let prefixes = key_parts::prefixes(&table, &key, &clause.lengths, clause.list)?;
        let name = key_parts::index_name(&table, clause)?;
        let no = IndexNo(table.indexes.len() as u16 + 1);
        table.invisible_indexes.extend(clause.invisible.then_some(no));
        table.descending.extend(clause.descending.iter().map(|&at| (no, at)));
        table.indexes.push(IndexDef {
            no,
            name,
            columns: key,
            prefixes,
            list: clause.list,
            unique: clause.unique,
            hidden_table: None,
            state: IndexState::Ready,
        });
    }
    visibility::check_columns(table.columns.iter())?;
    visibility::check_indexes(&table)?;
    super::rules::complete(&mut table, &checks)?;
    table.validate().map_err(|(code, text)| errors::from_code(code, &text))?;
    Ok(table)
}

/// A primary key of beginnings of columns becomes the first unique index, of columns that may not be NULL; where all of the columns is said to be in it, it is the primary key.
fn take_primary(
    columns: &mut [Column],
    indexes: &mut Vec<IndexClause>,
    primary: &mut Option<PrimaryKey>,
) -> Result<()> {
    let Some(at) = indexes.iter().position(|i| i.name.as_deref() == Some(key_parts::PRIMARY)) else { return Ok(()) };
    let clause = indexes.remove(at);
    let is_of = |c: &Column| clause.columns.iter().any(|name| name.eq_ignore_ascii_case(&c.name));
    columns.iter_mut().filter(|c| is_of(c)).for_each(|c| c.nullable = false);
    if indexes.iter().any(|i| i.name == clause.name) {
        return Err(errors::multiple_primary());
    }
    let plain = TableSchema::new("", "", columns.to_vec(), Vec::new());
    let key: Option<Vec<u16>> = clause.columns.iter().map(|name| plain.column_no(name)).collect();
    if key.is_some_and(|key| key_parts::prefixes(&plain, &key, &clause.lengths, None).is_ok_and(|p| p.is_empty())) {
        return set_primary(primary, PrimaryKey { columns: clause.columns, descending: clause.descending });
    }
    if primary.is_some() {
        return Err(errors::multiple_primary());
    }
    indexes.insert(0, clause);
    Ok(())
}
