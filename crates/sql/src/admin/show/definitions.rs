//! Definitions as SHOW CREATE writes them: the statements that make a table, a database, a view again.

use apus_types::{ColumnType, collate::Collation, schema::DefaultValue};

use super::expressions;
use crate::{
    catalog::{
        Table, foreign_key, full_text, key_parts,
        view::{self, View},
        visibility,
    },
    errors::Result,
    parse::{
        charset::is_said,
        view_text::{self, quoted},
    },
    value::{float_digits, number_format},
};

/// The column's type as SHOW prints it.
pub fn type_of(column: &apus_types::Column) -> String {
    number_format::shown(column)
        .or_else(|| float_digits::type_name(column))
        .unwrap_or_else(|| type_name(column.ty, &column.declared))
}

fn type_name(ty: ColumnType, declared: &str) -> String {
    let fraction = |name: &str, n: u8| if n == 0 { name.to_owned() } else { format!("{name}({n})") };
    match ty {
        ColumnType::Int { bits, unsigned } => {
            if declared.starts_with("tinyint(1)") && !unsigned {
                return "tinyint(1)".into();
            }
            let name = match bits {
                8 => "tinyint",
                16 => "smallint",
                24 => "mediumint",
                32 => "int",
                _ => "bigint",
            };
            format!("{name}{}", if unsigned { " unsigned" } else { "" })
        }
        ColumnType::Decimal { precision, scale, unsigned } => {
            format!("decimal({precision},{scale}){}", if unsigned { " unsigned" } else { "" })
        }
        ColumnType::Float => "float".into(),
        ColumnType::Double => "double".into(),
        ColumnType::Char { length, .. } => format!("char({length})"),
        ColumnType::VarChar { length, .. } => format!("varchar({length})"),
        ColumnType::Binary { length } => format!("binary({length})"),
        ColumnType::VarBinary { length } => format!("varbinary({length})"),
        ColumnType::Text { length, .. } => format!("{}text", size_prefix(length)),
        ColumnType::Blob { length } => format!("{}blob", size_prefix(length)),
        ColumnType::Date => "date".into(),
        ColumnType::DateTime { decimals } => fraction("datetime", decimals),
        ColumnType::Timestamp { decimals } => fraction("timestamp", decimals),
        ColumnType::Time { decimals } => fraction("time", decimals),
        ColumnType::Year => "year".into(),
        ColumnType::Json => "json".into(),
        ColumnType::Bit { length } => format!("bit({length})"),
        ColumnType::Label { is_set, labels, .. } => {
            let list: Vec<String> = labels.0.0.iter().map(|l| format!("'{}'", l.replace('\'', "''"))).collect();
            format!("{}({})", if is_set { "set" } else { "enum" }, list.join(","))
        }
    }
}

fn size_prefix(length: u32) -> &'static str {
    const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
    match length {
        0..=255 => "tiny",
        256..=65_535 => "",
        LONGEST => "long",
        _ => "medium",
    }
}

/// The function with the column's digits: MySQL takes no others.
fn current_timestamp(c: &apus_types::Column) -> String {
    match crate::value::datum::decimals_of(c.ty) {
        0 => "CURRENT_TIMESTAMP".to_owned(),
        digits => format!("CURRENT_TIMESTAMP({digits})"),
    }
}

/// A text as SHOW CREATE TABLE writes it.
fn literal(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\0' => out.push_str("\\0"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("''"),
            c => out.push(c),
        }
    }
    out + "'"
}

/// The default as SHOW COLUMNS tells it; of bytes, as in MySQL, what stands before the first zero.
pub fn default_text(c: &apus_types::Column) -> Option<String> {
    match &c.default {
        DefaultValue::Literal(t) if matches!(c.ty, ColumnType::Binary { .. } | ColumnType::VarBinary { .. }) => {
            let shown = t.bytes().take_while(|b| *b != 0);
            let prefix = if t.is_empty() { "" } else { "0x" };
            Some(shown.fold(prefix.to_owned(), |hex, b| hex + &format!("{b:02X}")))
        }
        DefaultValue::Literal(t) => Some(t.clone()),
        DefaultValue::CurrentTimestamp => Some(current_timestamp(c)),
        DefaultValue::Expression(text) => Some(crate::parse::view_text::escaped(text)),
        DefaultValue::None | DefaultValue::Null => None,
    }
}

/// The column's part in keys, as SHOW COLUMNS says it.
pub fn key_kind(s: &apus_types::TableSchema, column: u16) -> &'static str {
    let of_beginnings = s.indexes.first().filter(|i| i.name == key_parts::PRIMARY);
    if !s.hidden_key && s.primary_key.contains(&column) || of_beginnings.is_some_and(|i| i.columns.contains(&column)) {
        "PRI"
    } else if s.indexes.iter().any(|i| i.unique && i.columns == [column]) {
        "UNI"
    } else if full_text::begins_any_index(s, column) {
        "MUL"
    } else {
        ""
    }
}

/// What else SHOW COLUMNS says of a column.
pub fn extra(c: &apus_types::Column) -> String {
    let mut extra = String::new();
    if c.auto_increment {
        extra.push_str("auto_increment");
    }
    extra.push_str(expressions::extra(c));
    if c.on_update_now {
        extra += &format!(" on update {}", current_timestamp(c));
    }
    if c.invisible {
        extra += " INVISIBLE";
    }
    extra.trim().to_owned()
}

/// Indexes as SHOW lists them: unique ones first, and of those the ones that may not be NULL.
pub(super) fn in_order(s: &apus_types::TableSchema) -> Vec<&apus_types::IndexDef> {
    let mut list: Vec<&apus_types::IndexDef> = s.indexes.iter().collect();
    let may_be_null = |i: &apus_types::IndexDef| i.columns.iter().any(|&c| s.columns[usize::from(c)].nullable);
    list.sort_by_key(|i| (i.name != key_parts::PRIMARY, !i.unique, i.unique && may_be_null(i)));
    list
}

/// The statement that makes a table again; `next`: of its AUTO_INCREMENT column.
pub fn create_table(t: &Table, next: Option<u64>) -> String {
    let s = &t.schema;
    let quote = |n: &str| format!("`{}`", n.replace('`', "``"));
    let mut lines = Vec::new();
    for c in t.visible_columns() {
        let c = &s.columns[usize::from(c)];
        let mut line = format!("  {} {}", quote(&c.name), type_of(c));
        if let Some(collation) = c.ty.collation() {
            if collation != s.collation {
                line += &format!(" CHARACTER SET {} COLLATE {}", collation.charset().name(), collation.name());
            } else if !collation.is_default_of_charset() {
                line += &format!(" COLLATE {}", collation.name());
            }
        }
        let generated = expressions::generated(c);
        line += generated.as_deref().unwrap_or("");
        if !c.nullable {
            line += " NOT NULL";
        } else if matches!(c.ty, ColumnType::Timestamp { .. }) {
            line += " NULL";
        }
        match &c.default {
            DefaultValue::Literal(t) if matches!(c.ty, ColumnType::Bit { .. }) => line += &format!(" DEFAULT {t}"),
            DefaultValue::Literal(t) => line += &format!(" DEFAULT {}", literal(t)),
            DefaultValue::CurrentTimestamp => line += &format!(" DEFAULT {}", current_timestamp(c)),
            DefaultValue::Expression(text) => line += &format!(" DEFAULT ({text})"),
            _ if c.nullable
                && generated.is_none()
                && !matches!(c.ty, ColumnType::Text { .. } | ColumnType::Blob { .. }) =>
            {
                line += " DEFAULT NULL"
            }
            _ => {}
        }
        if c.on_update_now {
            line += &format!(" ON UPDATE {}", current_timestamp(c));
        }
        if c.auto_increment {
            line += " AUTO_INCREMENT";
        }
        line += visibility::shown_column(c);
        if !c.comment.is_empty() {
            line += &format!(" COMMENT {}", literal(&c.comment));
        }
        lines.push(line);
    }
    if !s.hidden_key {
        lines.push(format!("  PRIMARY KEY ({})", key_parts::written_primary(s)));
    }
    for i in in_order(s) {
        let parts = key_parts::written(s, i);
        let (unique, end) = (if i.unique { "UNIQUE " } else { "" }, visibility::shown_index(s, i));
        lines.push(match i.name == key_parts::PRIMARY {
            true => format!("  PRIMARY KEY ({parts})"),
            false => format!("  {unique}KEY {} ({parts}){end}", quote(&i.name)),
        });
    }
    lines.extend(full_text::shown(s));
    let engine = if s.engine.is_empty() { "InnoDB" } else { &s.engine };
    for key in foreign_key::by_name(s) {
        let unchecked = if key.unchecked { " /* apus: rows from before are not looked at */" } else { "" };
        lines.push(format!("  {}{unchecked}", foreign_key::definition(s, key)));
    }
    lines.extend(expressions::checks(s));
    let comment = if s.comment.is_empty() { String::new() } else { format!(" COMMENT={}", literal(&s.comment)) };
    let body = lines.join(",\n");
    let collate = if is_said(s.collation) { format!(" COLLATE={}", s.collation.name()) } else { String::new() };
    let counted = next.filter(|n| *n > 1).map_or_else(String::new, |n| format!(" AUTO_INCREMENT={n}"));
    format!(
        "CREATE {}TABLE {} (\n{body}\n) ENGINE={engine}{counted} DEFAULT CHARSET={}{collate}{comment}",
        if t.is_temporary() { "TEMPORARY " } else { "" },
        quote(&s.name),
        s.collation.charset().name()
    )
}

/// `unless_there`: the comment that tells versions of MySQL that know it not to mind a database that is there.
pub(super) fn create_database(unless_there: &str, name: &str, collation: Collation) -> String {
    let collate = if is_said(collation) { format!(" COLLATE {}", collation.name()) } else { String::new() };
    let characters = format!("/*!40100 DEFAULT CHARACTER SET {}{collate} */", collation.charset().name());
    format!("CREATE DATABASE {unless_there}{} {characters} /*!80016 DEFAULT ENCRYPTION='N' */", quoted(name))
}

/// The statement that makes a view again.
pub fn create_view(view: &View, current: Option<&str>) -> Result<String> {
    let d = &view.definition;
    let columns: Vec<String> = view.columns().map(quoted).collect();
    let columns = if d.named { format!(" ({})", columns.join(",")) } else { String::new() };
    let check = match d.check {
        view::Check::None => String::new(),
        check => format!(" WITH {} CHECK OPTION", check.name()),
    };
    let of = if current == Some(view.database()) { String::new() } else { format!("{}.", quoted(view.database())) };
    Ok(format!(
        "CREATE ALGORITHM={} DEFINER={}@{} SQL SECURITY {} VIEW {of}{}{columns} AS {}{check}",
        d.algorithm.name(),
        quoted(&d.definer.0),
        quoted(&d.definer.1),
        if d.invoker { "INVOKER" } else { "DEFINER" },
        quoted(view.name()),
        view_text::shown(&*view.query()?, view.database(), current)?
    ))
}
