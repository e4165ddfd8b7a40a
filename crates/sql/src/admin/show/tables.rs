//! SHOW COLUMNS, INDEX, TABLE STATUS: what is told of tables, one after the other.

use apus_types::{IndexDef, IndexNo, IndexState};

use super::{
    Rows,
    definitions::{default_text, extra, in_order, key_kind, type_of},
    expressions,
    filter::Filter,
    filtered, text,
};
use crate::{
    admin::table_sizes::Size,
    catalog::{Table, full_text, view},
    ddl::create_view,
    errors::Result,
    plan::rules::functional::is_part,
    server::Output,
    session::{Session, authorize::shown_privileges, engine::SqlEngine},
};

impl SqlEngine {
    pub(super) async fn show_columns(
        &self,
        session: &mut Session,
        name: crate::parse::token::Name,
        full: bool,
        filter: &Filter,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut found = self.named_table(session, &name, "SELECT").await?;
        let catalog = self.catalog_of(session).await?;
        if let Some(view) = catalog.view(&found.schema.database, &found.schema.name) {
            found = std::rc::Rc::new(create_view::columns_now(session, &catalog, view)?);
        }
        let s = &found.schema;
        let mut rows = Rows::new();
        for number in found.visible_columns() {
            let c = &s.columns[usize::from(number)];
            // Whose a temporary table is may do all with it.
            let me = session.env.me.as_ref().filter(|_| !found.is_temporary());
            let Some(privileges) = shown_privileges(me, s, &c.name) else { continue };
            let (key, extra) = (key_kind(s, number), extra(c));
            let mut row = vec![text(c.name.clone()), Some(type_of(c))];
            if full {
                row.push(c.ty.collation().map(|k| k.name().to_owned()));
            }
            row.extend([text(if c.nullable { "YES" } else { "NO" }), text(key), default_text(c), text(extra)]);
            if full {
                row.extend([text(privileges), text(c.comment.clone())]);
            }
            rows.push(row);
        }
        if full {
            let names = ["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"];
            filtered(session, out, &names, rows, filter)
        } else {
            filtered(session, out, &["Field", "Type", "Null", "Key", "Default", "Extra"], rows, filter)
        }
    }
}

/// Those that exist for the session's account.
pub(super) fn seen<'t>(session: &Session, mut tables: Vec<&'t std::rc::Rc<Table>>) -> Vec<&'t std::rc::Rc<Table>> {
    if let Some(me) = &session.env.me {
        tables.retain(|t| me.rights.sees_table(&t.schema.database, &t.schema.name));
    }
    tables
}

pub(super) fn show_virtual_tables(
    session: &mut Session,
    (database, kind): (&str, &'static str),
    names: impl Iterator<Item = &'static str>,
    full: bool,
    filter: &Filter,
    out: &mut Output<'_>,
) -> Result<()> {
    let title = format!("Tables_in_{database}");
    if full {
        let rows: Rows = names.map(|n| vec![text(n), text(kind)]).collect();
        filtered(session, out, &[&title, "Table_type"], rows, filter)
    } else {
        let rows: Rows = names.map(|n| vec![text(n)]).collect();
        filtered(session, out, &[&title], rows, filter)
    }
}

pub(super) const INDEX_COLUMNS: [&str; 15] = [
    "Table",
    "Non_unique",
    "Key_name",
    "Seq_in_index",
    "Column_name",
    "Collation",
    "Cardinality",
    "Sub_part",
    "Packed",
    "Null",
    "Index_type",
    "Comment",
    "Index_comment",
    "Visible",
    "Expression",
];

pub(super) fn index_rows(t: &Table) -> Rows {
    let s = &t.schema;
    let mut rows = Rows::new();
    let mut add =
        |name: &str, unique: bool, columns: &[u16], index: Option<&IndexDef>, comments: [&str; 2], visible: bool| {
            let is_full_text = full_text::has(s, name);
            for (i, &c) in columns.iter().enumerate() {
                let descends = s.descends(index.map_or(IndexNo(0), |index| index.no), i);
                let c = &s.columns[usize::from(c)];
                rows.push(vec![
                    text(s.name.clone()),
                    text(if unique { "0" } else { "1" }),
                    text(name),
                    text((i + 1).to_string()),
                    if is_part(c) { None } else { text(c.name.clone()) },
                    if is_full_text { None } else { text(if descends { "D" } else { "A" }) },
                    text("0"),
                    index.and_then(|index| index.prefix(i)).map(|n| n.to_string()),
                    None,
                    text(if c.nullable { "YES" } else { "" }),
                    text(if is_full_text { "FULLTEXT" } else { "BTREE" }),
                    text(comments[0]),
                    text(comments[1]),
                    text(if visible { "YES" } else { "NO" }),
                    is_part(c).then(|| expressions::generation(c)),
                ]);
            }
        };
    if !s.hidden_key {
        add("PRIMARY", true, &s.primary_key, None, ["", ""], true);
    }
    for i in in_order(s) {
        let comment = if i.state == IndexState::Building { "building" } else { "" };
        add(&i.name, i.unique, &i.columns, Some(i), [comment, ""], s.is_visible(i));
    }
    for i in &s.full_texts {
        add(&i.name, false, &i.columns, None, ["", &i.comment], !i.invisible);
    }
    rows
}

pub(super) const TABLE_STATUS: [&str; 18] = [
    "Name",
    "Engine",
    "Version",
    "Row_format",
    "Rows",
    "Avg_row_length",
    "Data_length",
    "Max_data_length",
    "Index_length",
    "Data_free",
    "Auto_increment",
    "Create_time",
    "Update_time",
    "Check_time",
    "Collation",
    "Checksum",
    "Create_options",
    "Comment",
];

pub(super) fn table_status(t: &Table, fault: Option<&str>, size: Option<&Size>) -> Vec<Option<String>> {
    let s = &t.schema;
    if view::is_view(s) {
        let mut row = vec![None; TABLE_STATUS.len()];
        row[0] = text(s.name.clone());
        row[TABLE_STATUS.len() - 1] = text(fault.unwrap_or("VIEW"));
        return row;
    }
    let engine = if s.engine.is_empty() { "InnoDB" } else { &s.engine };
    let mut row = [&s.name, engine, "10", "Dynamic"].map(text).to_vec();
    let told = size.map(|size| [size.rows, size.average, size.data, 0, size.indexes, 0].map(|n| text(n.to_string())));
    row.extend(told.unwrap_or([const { None }; 6]));
    row.push(size.and_then(|size| size.next).and_then(|next| text(next.to_string())));
    row.extend([None, None, None, text(s.collation.name()), None, text(""), text(s.comment.clone())]);
    row
}
