//! An expression of a definition: read from its text, and the text that is kept.

use apus_types::TableSchema;
use sqlparser::ast::{self, SelectItem, SetExpr, Statement};

use super::{bind, failures::Place, functional};
use crate::{
    errors::{self, Result},
    parse::view_text::{
        definition::{Special, of_definition},
        logic::is_boolean,
    },
    plan,
};

/// Longest text of an expression in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The syntax tree of an expression.
pub fn parse(text: &str) -> Result<ast::Expr> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(errors::not_supported("expressions of more than 64 KiB in a definition"));
    }
    let Statement::Query(query) = plan::syntax::parse(&format!("SELECT ({text})"))? else {
        return Err(errors::syntax(text));
    };
    let SetExpr::Select(select) = *query.body else { return Err(errors::syntax(text)) };
    match (select.projection.as_slice(), select.from.is_empty()) {
        ([SelectItem::UnnamedExpr(e)], true) => Ok(e.clone()),
        _ => Err(errors::syntax(text)),
    }
}

/// An expression that may stand where it does.
pub struct Examined {
    /// As it is kept.
    pub text: String,
    pub columns: Vec<u16>,
    pub functions: Vec<String>,
    pub is_boolean: bool,
}

/// Functions whose value depends on more than their arguments, and those that do something.
fn is_forbidden(function: &str, place: Place<'_>) -> bool {
    const NEVER: [&str; 17] = [
        "version()",
        "icu_version()",
        "last_insert_id",
        "found_rows",
        "row_count",
        "mysql_query_attribute_string",
        "sleep",
        "get_lock",
        "release_lock",
        "release_all_locks",
        "is_free_lock",
        "is_used_lock",
        "benchmark",
        "load_file",
        "values",
        "master_pos_wait",
        "source_pos_wait",
    ];
    const OF_THE_MOMENT: [&str; 14] = [
        "rand",
        "uuid",
        "uuid_short",
        "now",
        "curdate",
        "curtime",
        "utc_date",
        "utc_time",
        "utc_timestamp",
        "unix_timestamp",
        "connection_id",
        "current_user",
        "user",
        "database",
    ];
    match place {
        Place::Default(_) => NEVER.contains(&function),
        Place::Check(_) | Place::Added(_) => {
            NEVER.contains(&function) || OF_THE_MOMENT.contains(&function) || function == "current_role"
        }
        Place::Generated(_) | Place::KeyPart(_) => {
            let only_here = ["current_role", "sysdate", "statement_digest", "random_bytes"];
            NEVER.contains(&function) || OF_THE_MOMENT.contains(&function) || only_here.contains(&function)
        }
    }
}

/// Looks through an expression over the columns of a table.
///
/// # Errors
/// What may not stand there: 1054, 1064, 3102, 3109, 3763 to 3772, 3814 to 3820.
pub fn examine(table: &TableSchema, text: &str, place: Place<'_>) -> Result<Examined> {
    let tree = parse(text)?;
    let is_key_part = match place {
        Place::KeyPart(_) => true,
        Place::Generated(name) => functional::is_name(name),
        _ => false,
    };
    if functional::array(&tree).is_some() && !is_key_part {
        return Err(errors::array_outside_of_key());
    }
    let (text, named) = of_definition(&tree)?;
    // What is read again must be what was written.
    if !parse(&text).and_then(|again| of_definition(&again)).is_ok_and(|(again, _)| again == text)
        && named.special.iter().all(|s| matches!(s, Special::Function(_)))
    {
        return Err(errors::not_supported("this expression in the definition of a table"));
    }
    let is_row = |e: &ast::Expr| match e {
        ast::Expr::Function(f) => f.name.to_string().eq_ignore_ascii_case("row"),
        other => matches!(other, ast::Expr::Tuple(_)),
    };
    if is_row(inner(&tree)) {
        return Err(place.row());
    }
    for special in &named.special {
        match special {
            Special::Function(name) if is_forbidden(name, place) => return Err(place.function(name)),
            Special::Function(_) => {}
            Special::Variable => return Err(place.variable()),
            Special::Subquery => return Err(place.subquery()),
        }
    }
    let mut columns = Vec::new();
    for name in &named.columns {
        let found = table.column_no(name).filter(|_| !name.starts_with('#'));
        columns.push(found.ok_or_else(|| place.unknown_column(name))?);
    }
    if columns.iter().any(|&c| table.columns[usize::from(c)].auto_increment) {
        return Err(place.auto_increment());
    }
    bind(table, &text, "expression").map_err(|e| unknown_function(e, place))?;
    let function = |special| if let Special::Function(name) = special { Some(name) } else { None };
    let functions = named.special.into_iter().filter_map(function).collect();
    Ok(Examined { is_boolean: is_boolean(&tree), text, columns, functions })
}

/// Names of the columns in a text that is kept.
pub fn names(text: &str) -> Result<Vec<String>> {
    Ok(of_definition(&parse(text)?)?.1.columns)
}

fn unknown_function(e: crate::wire::SqlError, place: Place<'_>) -> crate::wire::SqlError {
    let name = e.message.strip_prefix("FUNCTION ").and_then(|m| m.split_once(" does not")).map(|(name, _)| name);
    match name.filter(|_| e.errno == 1305) {
        Some(name) => place.function(&format!("`{}`", name.rsplit('.').next().unwrap_or(name))),
        None => e,
    }
}

fn inner(e: &ast::Expr) -> &ast::Expr {
    match e {
        ast::Expr::Nested(e) => inner(e),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        of_definition(&parse(text).unwrap()).unwrap().0
    }

    #[test]
    fn what_is_kept_is_kept_as_it_is() {
        for (text, kept) in [
            ("a > 0", "(`a` > 0)"),
            ("t.a in ('x', \"y\")", "(`a` in (_utf8mb4'x',_utf8mb4'y'))"),
            ("a AND b && NOT c", "((0 <> `a`) and (0 <> `b`) and (0 = `c`))"),
            (
                "NOT (a > 1 OR b IS NULL) OR NOT (c LIKE 'x')",
                "(((`a` <= 1) and (`b` is not null)) or (not((`c` like _utf8mb4'x'))))",
            ),
            ("a || b && c", "((0 <> `a`) or ((0 <> `b`) and (0 <> `c`)))"),
            ("a DIV 2 = 1 XOR TRUE", "(((`a` DIV 2) = 1) xor true)"),
            ("CAST(a AS CHAR(5)) = 'x'", "(cast(`a` as char(5) charset utf8mb4) = _utf8mb4'x')"),
            ("DATEDIFF(a, b) > 1", "((to_days(`a`) - to_days(`b`)) > 1)"),
            ("CURRENT_TIMESTAMP + INTERVAL 1 DAY", "(now() + interval 1 day)"),
            ("-1", "-(1)"),
            ("doc->>'$.a'", "json_unquote(json_extract(`doc`,_utf8mb4'$.a'))"),
            ("d > DATE '2024-01-01'", "(`d` > DATE'2024-01-01')"),
            ("b = _binary'x'", "(`b` = _binary'x')"),
            ("CONCAT('it''s', '\\\\')", "concat(_utf8mb4'it\\'s',_utf8mb4'\\\\')"),
            ("c like 'a%'", "(`c` like _utf8mb4'a%')"),
        ] {
            let once = canonical(text);
            assert_eq!(once, kept, "{text}");
            assert_eq!(canonical(&once), once, "{text}");
        }
    }

    #[test]
    fn one_expression_is_read() {
        for wrong in ["1) FROM t WHERE (1", "1, 2) x, (3", "1 AS x", "", "a)"] {
            assert!(parse(wrong).is_err() || parse(wrong).is_ok_and(|e| matches!(e, ast::Expr::Tuple(_))), "{wrong}");
        }
    }
}
