//! Data definition: CREATE, DROP, ALTER, TRUNCATE and RENAME, parsed from tokens into schema changes.

use super::{
    alter::{self, AlterClause},
    create_select::{SelectClause, begins_select, check_new_name},
    create_view::ViewClause,
    default_dates,
    foreign_key::clause::{self, Clause},
    rules::clause::CheckClause,
    table_options::table_options,
};
use crate::{
    catalog::{
        HIDDEN_KEY, full_text,
        key_parts::{self, IndexClause, KeyParts, PrimaryKey},
        visibility,
    },
    errors::{self, Result},
    expr::assign::{self, Assign},
    parse::{
        charset::{Characters, collation_named},
        column_type::{set_collation, typed},
        token::{Name, Tokens},
    },
    plan::rules,
    value::{
        bits,
        datum::Datum,
        enum_set,
        number_format::{self, Face},
        zone::Zone,
    },
};
use apus_types::{
    Column, ColumnType, IndexDef, IndexNo, IndexState, TableSchema, Value, collate::Collation, schema::DefaultValue,
};

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
            Ddl::CreateDatabase { .. }
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
    for (word, what) in [
        ("temporary", "temporary tables"),
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
    t.word("temporary");
    if !t.word("table") && !t.word("tables") {
        return Err(errors::not_supported("this form of DROP"));
    }
    let if_exists = if_exists(t)?;
    let mut names = vec![t.name()?];
    while t.symbol(',') {
        names.push(t.name()?);
    }
    let _ = t.word("restrict") || t.word("cascade");
    Ok(Ddl::DropTables { names, if_exists })
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
    Ok(Ddl::Alter(Box::new(alter::parse(t, text, table, default)?)))
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

fn index_type(t: &mut Tokens) -> Result<()> {
    if t.word("using") {
        t.identifier()?;
    }
    Ok(())
}
fn index_options(t: &mut Tokens) -> Result<bool> {
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

fn create_table(t: &mut Tokens, text: &str, default: Collation) -> Result<Ddl> {
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
        checks.push(super::rules::clause::check(t, constraint, None)?);
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
    super::rules::clause::check_options(&column)?;
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
        if is_first && super::rules::clause::generated(t, c)? {
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
        } else if let Some(check) = super::rules::clause::of_column(t, c)? {
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

fn unique(c: &Column) -> IndexClause {
    IndexClause { columns: vec![c.name.clone()], unique: true, ..IndexClause::default() }
}

/// NOT NULL AUTO_INCREMENT UNIQUE, which the type SERIAL and the words SERIAL DEFAULT VALUE stand for.
fn make_serial(c: &mut Column, indexes: &mut Vec<IndexClause>) {
    (c.auto_increment, c.nullable) = (true, false);
    indexes.push(unique(c));
}

fn set_primary(primary: &mut Option<PrimaryKey>, key: PrimaryKey) -> Result<()> {
    match primary.replace(key) {
        None => Ok(()),
        Some(_) => Err(errors::multiple_primary()),
    }
}

/// A literal default becomes what the column makes of it, as MySQL shows it: `1.50` where DECIMAL(10,2) is given 1.5. One that the column cannot hold would refuse every
/// row that leaves it out. Which dates it may be is for the session to say ([`super::default_dates`]).
///
/// # Errors
/// 1067: no value of the column; 1101: a type that has no literal defaults.
pub fn settle_default(c: &mut Column) -> Result<()> {
    let invalid = || errors::invalid_default(&c.name);
    let is_long = matches!(c.ty, ColumnType::Json | ColumnType::Text { .. } | ColumnType::Blob { .. });
    let text = match &c.default {
        DefaultValue::Literal(text) if is_long && (c.ty == ColumnType::Json || !text.is_empty()) => {
            let text = format!("BLOB, TEXT, GEOMETRY or JSON column '{}' can't have a default value", c.name);
            return Err(crate::wire::SqlError::new(1101, b"42000", text));
        }
        DefaultValue::Literal(text) => text,
        DefaultValue::Null if !c.nullable => return Err(invalid()),
        _ => return Ok(()),
    };
    let assign = Assign { row: 1, table: "", strict: true, zone: Zone::UTC, env: None };
    let kept = match c.ty {
        ColumnType::Bit { length } => {
            let value = bits::of_default(text, length);
            assign::assign(c, value, assign).map_err(|_| invalid())?;
            text.clone()
        }
        ColumnType::Date | ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } if text == "0" => {
            assign::implicit_default(c.ty).as_string()
        }
        // Refused, or made one of zeros, by who knows the session.
        ColumnType::Timestamp { .. } if default_dates::is_none(text) => text.clone(),
        _ => {
            let value = assign::assign(c, Datum::text(text.clone()), assign);
            match (value.map_err(|_| invalid())?, c.ty) {
                (Datum::UInt(n), ColumnType::Label { is_set, labels: list, .. }) => {
                    Datum::Text(enum_set::text(list, is_set, n)).as_string()
                }
                (Datum::Int(micros), ColumnType::Timestamp { .. }) => {
                    Datum::of_column(c.ty, Value::Timestamp(micros), Zone::UTC).as_string()
                }
                (year, ColumnType::Year) => format!("{:0>4}", year.as_string()),
                (value, _) => match Face::of(c) {
                    Some(face) => face.text(&value),
                    None => value.as_string(),
                },
            }
        }
    };
    c.default = DefaultValue::Literal(kept);
    Ok(())
}

fn now(t: &mut Tokens) -> Result<()> {
    if !(t.word("current_timestamp") || t.word("now") || t.word("localtimestamp") || t.word("localtime")) {
        return Err(t.error());
    }
    if t.symbol('(') {
        if !t.peek_symbol(')') {
            t.number()?;
        }
        t.expect_symbol(')')?;
    }
    Ok(())
}

/// A default as it is written; what it is depends on the column.
#[derive(Clone, PartialEq, Debug)]
pub enum Given {
    Value(DefaultValue),
    Number(String),
    Text(String),
    /// A hexadecimal or bit literal.
    Bytes(Vec<u8>),
}

impl Given {
    /// # Errors
    /// 1067: no value of the column.
    pub fn of(&self, c: &Column) -> Result<DefaultValue> {
        let ColumnType::Bit { length } = c.ty else {
            let is_number = !c.ty.is_text() && c.ty.fixed_bytes().is_some();
            return Ok(match self {
                Given::Value(value) => value.clone(),
                Given::Number(text) | Given::Text(text) => DefaultValue::Literal(text.clone()),
                Given::Bytes(bytes) if is_number => {
                    let n = bits::of_bytes(bytes).ok_or_else(|| errors::invalid_default(&c.name))?;
                    DefaultValue::Literal(n.to_string())
                }
                Given::Bytes(bytes) => {
                    let text = String::from_utf8(bytes.clone()).map_err(|_| errors::invalid_default(&c.name))?;
                    DefaultValue::Literal(text)
                }
            });
        };
        let value = match self {
            Given::Value(value) => return Ok(value.clone()),
            Given::Number(text) => match text.parse() {
                Ok(n) => Datum::UInt(n),
                Err(_) => Datum::Double(text.parse().map_err(|_| errors::invalid_default(&c.name))?),
            },
            Given::Text(text) => Datum::text(text.clone()),
            Given::Bytes(bytes) => Datum::Bytes(bytes.into()),
        };
        let n = bits::assigned(&value, length).ok_or_else(|| errors::invalid_default(&c.name))?;
        Ok(DefaultValue::Literal(bits::literal(n)))
    }
}

pub fn default_value(t: &mut Tokens) -> Result<Given> {
    if t.word("null") {
        return Ok(Given::Value(DefaultValue::Null));
    }
    if t.word("true") {
        return Ok(Given::Number("1".into()));
    }
    if t.word("false") {
        return Ok(Given::Number("0".into()));
    }
    if let Some(bytes) = bits::written(t)? {
        return Ok(Given::Bytes(bytes));
    }
    if t.peek_string() {
        return Ok(Given::Text(t.string()?));
    }
    let sign = if t.symbol('-') { "-" } else { "" };
    if t.peek_number() {
        return Ok(Given::Number(format!("{sign}{}", t.number()?)));
    }
    if t.peek_symbol('(') {
        return Ok(Given::Value(DefaultValue::Expression(crate::parse::token::expression(t)?)));
    }
    now(t)?;
    Ok(Given::Value(DefaultValue::CurrentTimestamp))
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
    key_parts::prefixes(&table, &table.primary_key, &[])?;
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
        let prefixes = key_parts::prefixes(&table, &key, &clause.lengths)?;
        let name = key_parts::index_name(&table, clause)?;
        let no = IndexNo(table.indexes.len() as u16 + 1);
        table.invisible_indexes.extend(clause.invisible.then_some(no));
        table.descending.extend(clause.descending.iter().map(|&at| (no, at)));
        table.indexes.push(IndexDef {
            no,
            name,
            columns: key,
            prefixes,
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
    if key.is_some_and(|key| key_parts::prefixes(&plain, &key, &clause.lengths).is_ok_and(|p| p.is_empty())) {
        return set_primary(primary, PrimaryKey { columns: clause.columns, descending: clause.descending });
    }
    if primary.is_some() {
        return Err(errors::multiple_primary());
    }
    indexes.insert(0, clause);
    Ok(())
}
