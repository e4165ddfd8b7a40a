//! INSERT and REPLACE: where the rows come from, and which columns their values go to.

use std::rc::Rc;

use apus_types::{TableSchema, collate::Charset, schema::ColumnType};
use sqlparser::ast::{self, OnInsert, SetExpr, TableObject};

use super::{check_writable, column_of, given, target_of};
use crate::{
    accounts::Privileges,
    catalog::Table,
    errors,
    expr::{Expr, Kind},
    plan::{
        Planner, Select, Unplanned,
        bind::{Builder, text::has_own_bytes},
        needs::{Changed, Names, targets},
        rules,
        updatable_view::RowCheck,
    },
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDuplicate {
    Refuse,
    Ignore,
    Replace,
    Update,
}

#[derive(Debug)]
pub enum Source {
    /// Per row, per named column; `None` is DEFAULT.
    Values(Vec<Vec<Option<Expr>>>),
    Select(Box<Select>),
}

#[derive(Debug)]
pub struct Insert {
    pub table: Rc<Table>,
    pub names: Names,
    /// For each column of the table, its place in a row of the source.
    pub places: Vec<Option<usize>>,
    pub source: Source,
    /// As [`texts_as_bytes`].
    pub encoded: Vec<(usize, Charset)>,
    /// The source is a query in place of values, because there are subqueries among them.
    pub of_values: bool,
    /// For each column its default, or why there is none.
    pub defaults: Vec<errors::Result<Expr>>,
    pub on_duplicate: OnDuplicate,
    /// ON DUPLICATE KEY UPDATE.
    pub assignments: Vec<(u16, Expr)>,
    /// What rows must satisfy that go through a view.
    pub check: Option<RowCheck>,
    /// What rows must satisfy that REPLACE takes away.
    pub within: Option<RowCheck>,
}

/// The values that the statement lists, by rows.
pub(super) fn listed(insert: &ast::Insert) -> Vec<Vec<&ast::Expr>> {
    if !insert.assignments.is_empty() {
        return vec![insert.assignments.iter().map(|a| &a.value).collect()];
    }
    match insert.source.as_ref().map(|query| &*query.body) {
        Some(SetExpr::Values(values)) => values.rows.iter().map(|row| row.iter().collect()).collect(),
        _ => Vec::new(),
    }
}

/// Whether there is a subquery among the values; a text that looks like one does no harm.
fn asks(insert: &ast::Insert) -> bool {
    let asks = |e: &&ast::Expr| match e {
        ast::Expr::Value(_) | ast::Expr::Identifier(_) => false,
        e => e.to_string().contains("(SELECT "),
    };
    listed(insert).iter().flatten().any(asks)
}

impl Planner<'_> {
    /// Values with subqueries, as a query: `SELECT values UNION ALL SELECT values`. What is DEFAULT is left out of it.
    fn asked_values(
        &self,
        insert: &ast::Insert,
        table: &Rc<Table>,
        width: usize,
        places: &mut [Option<usize>],
    ) -> Result<Source, Unplanned> {
        let rows = listed(insert);
        let is_default = |e: &ast::Expr| matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"));
        if let Some(at) = rows.iter().position(|row| row.len() != width) {
            return Err(errors::column_count(at + 1).into());
        }
        let defaults: Vec<bool> = (0..width).map(|at| rows.iter().all(|row| is_default(row[at]))).collect();
        if rows.iter().any(|row| row.iter().zip(&defaults).any(|(e, all)| is_default(e) != *all)) {
            return Err(errors::not_supported("DEFAULT in some rows of VALUES with subqueries").into());
        }
        let ast::Statement::Query(template) = crate::plan::syntax::parse("SELECT 1")? else {
            return Err(errors::internal("a query that is none").into());
        };
        let block = |row: &Vec<&ast::Expr>| -> Result<SetExpr, Unplanned> {
            let SetExpr::Select(mut select) = (*template.body).clone() else {
                return Err(errors::internal("a query that is none").into());
            };
            let kept = row.iter().zip(&defaults).filter(|(_, is_default)| !**is_default);
            select.projection = kept.map(|(e, _)| ast::SelectItem::UnnamedExpr((*e).clone())).collect();
            Ok(SetExpr::Select(select))
        };
        let mut query = template.clone();
        *query.body = block(&rows[0])?;
        for row in &rows[1..] {
            let left = std::mem::replace(&mut query.body, Box::new(block(row)?));
            let right = std::mem::replace(&mut query.body, left.clone());
            *query.body = SetExpr::SetOperation {
                op: ast::SetOperator::Union,
                set_quantifier: ast::SetQuantifier::All,
                left,
                right,
            };
        }
        let select = self.select(&query)?;
        if select.reads.iter().any(|read| Rc::ptr_eq(read, table)) {
            return Err(errors::update_table_used(&table.schema.name).into());
        }
        for place in places.iter_mut() {
            *place = place.filter(|at| !defaults[*at]).map(|at| at - defaults[..at].iter().filter(|d| **d).count());
        }
        Ok(Source::Select(Box::new(select)))
    }

    pub(crate) fn insert(&self, insert: &ast::Insert) -> Result<Insert, Unplanned> {
        if insert.returning.is_some() || insert.partitioned.is_some() || insert.overwrite {
            return Err(errors::not_supported("this form of INSERT").into());
        }
        let TableObject::TableName(name) = &insert.table else {
            return Err(errors::not_supported("INSERT INTO this").into());
        };
        let mut on_duplicate = match (insert.replace_into, insert.ignore) {
            (true, _) => OnDuplicate::Replace,
            (_, true) => OnDuplicate::Ignore,
            _ => OnDuplicate::Refuse,
        };
        let through = match self.view(name)? {
            Some(view) => Some(self.insert_through(&view, names_of(insert).as_deref(), on_duplicate)?),
            None => None,
        };
        let table = match &through {
            Some(through) => through.table.clone(),
            None => self.resolve(name)?,
        };
        check_writable(&table)?;
        if let Some(hints) = self.hints_here() {
            let is_query = |query: &ast::Query| !matches!(&*query.body, SetExpr::Values(_));
            hints.writes(&table, insert.source.as_deref().is_some_and(is_query));
        }
        let replaces = if on_duplicate == OnDuplicate::Replace { Privileges::DELETE } else { Privileges::NONE };
        let view = self.view(name)?;
        let schema = &table.schema;
        let mut named = Vec::new();
        let mut set_values = Vec::new();
        let of_values = asks(insert);
        if !insert.assignments.is_empty() {
            let mut builder = self.builder_over(None, "");
            builder.target = Some(schema);
            for a in &insert.assignments {
                if through.is_none() {
                    named.push(column_of(&table, &a.target, "field list")?);
                }
                if !of_values {
                    set_values.push(value_or_default(&mut builder, &a.value)?);
                }
            }
        } else if through.is_some() {
            // Named by the view.
        } else if insert.columns.is_empty() {
            named = table.listed_columns().collect();
        } else {
            for column in &insert.columns {
                let text = column.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone()).unwrap_or_default();
                let found = schema.column_no(&text).filter(|_| !text.starts_with('#'));
                named.push(found.ok_or_else(|| errors::unknown_column(&text, "field list"))?);
            }
        }
        if let Some(through) = &through {
            named.clone_from(&through.named);
        }
        let names = names_of(insert);
        let changed = Changed { columns: &named, names: names.as_deref().unwrap_or(&[]), is_all: names.is_none() };
        self.need_change(view.as_ref(), &table, Privileges::INSERT.union(replaces), changed);
        self.refer_to_target(view.as_ref(), &table, None);
        let mut places = vec![None; schema.columns.len()];
        for (at, &column) in named.iter().enumerate() {
            if places[usize::from(column)].replace(at).is_some() {
                return Err(errors::column_twice(&schema.columns[usize::from(column)].name).into());
            }
        }
        let mut source = match of_values {
            true => self.asked_values(insert, &table, named.len(), &mut places)?,
            false => self.source(insert, &table, named.len(), set_values)?,
        };
        refuse_generated(&source, &table, &named)?;
        if let Source::Values(rows) = &mut source {
            for (value, &column) in rows.iter_mut().flat_map(|row| row.iter_mut().zip(&named)) {
                *value = value.take().map(|e| given(schema.columns[usize::from(column)].ty, e, &self.param_kinds));
            }
        }
        let encoded = match &source {
            Source::Values(_) => Vec::new(),
            Source::Select(select) => texts_as_bytes(schema, &places, select, &self.param_kinds),
        };
        let mut assignments = Vec::new();
        match &insert.on {
            None => {}
            Some(OnInsert::DuplicateKeyUpdate(list)) => {
                on_duplicate = OnDuplicate::Update;
                let beneath = match &through {
                    Some(view) => {
                        let several =
                            || errors::not_supported("ON DUPLICATE KEY UPDATE through a view of several tables");
                        Some(view.through.as_ref().ok_or_else(several)?)
                    }
                    None => None,
                };
                let mut builder = self.builder_of(beneath, &table, &schema.name);
                builder.param_kinds = Vec::new();
                builder.allow_values = true;
                builder.new_alias = insert.insert_alias.as_ref().map(|a| a.row_alias.to_string());
                for a in list {
                    let column = target_of(beneath, &table, a)?;
                    let e = self.assigned(&mut builder, &table, column, a)?;
                    assignments.extend(e.map(|e| (column, e)));
                }
                let columns: Vec<u16> = assignments.iter().map(|(column, _)| *column).collect();
                let changed = Changed { columns: &columns, names: &targets(list), is_all: false };
                self.need_change(view.as_ref(), &table, Privileges::UPDATE, changed);
                self.need_read(beneath, &table, assignments.iter().map(|(_, e)| e));
            }
            Some(_) => return Err(errors::syntax("ON CONFLICT").into()),
        }
        let (check, within, defaults) = match through {
            Some(through) => (through.check, through.within, through.defaults),
            None => (None, None, (0..schema.columns.len() as u16).map(|c| rules::initial(&table, c)).collect()),
        };
        let names = Names::default();
        Ok(Insert {
            table,
            names,
            places,
            source,
            encoded,
            of_values,
            defaults,
            on_duplicate,
            assignments,
            check,
            within,
        })
    }

    fn source(
        &self,
        insert: &ast::Insert,
        table: &Table,
        width: usize,
        set_values: Vec<Option<Expr>>,
    ) -> Result<Source, Unplanned> {
        if !insert.assignments.is_empty() {
            return Ok(Source::Values(vec![set_values]));
        }
        let Some(query) = &insert.source else { return Ok(Source::Values(vec![Vec::new()])) };
        let SetExpr::Values(values) = &*query.body else {
            let select = self.merging(query)?;
            if select.outputs.len() != width {
                return Err(errors::column_count(1).into());
            }
            return Ok(Source::Select(Box::new(select)));
        };
        let mut rows = Vec::with_capacity(values.rows.len());
        for (i, row) in values.rows.iter().enumerate() {
            let mut builder = self.builder_over(None, "");
            builder.target = Some(&table.schema);
            let row = row.iter().map(|e| value_or_default(&mut builder, e)).collect::<Result<Vec<_>, _>>()?;
            // VALUES () gives every column its default.
            if row.len() != width && !row.is_empty() {
                return Err(errors::column_count(i + 1).into());
            }
            rows.push(row);
        }
        Ok(Source::Values(rows))
    }

    pub(super) fn assigned(
        &self,
        builder: &mut Builder<'_>,
        table: &Table,
        column: u16,
        a: &ast::Assignment,
    ) -> Result<Option<Expr>, Unplanned> {
        if let ast::Expr::Identifier(i) = &a.value
            && i.quote_style.is_none()
            && i.value.eq_ignore_ascii_case("default")
        {
            let is_generated = table.schema.columns[usize::from(column)].generated.is_some();
            return if is_generated { Ok(None) } else { Ok(Some(rules::default_of(table, column)?)) };
        }
        rules::refuse_value(&table.schema, column)?;
        Ok(Some(given(table.schema.columns[usize::from(column)].ty, builder.build(&a.value)?, &self.param_kinds)))
    }
}

/// A generated column is given no value but DEFAULT.
fn refuse_generated(source: &Source, table: &Table, named: &[u16]) -> Result<(), Unplanned> {
    for (at, &column) in named.iter().enumerate() {
        let is_given = match source {
            Source::Values(rows) => rows.iter().any(|row| row.get(at).is_some_and(Option::is_some)),
            Source::Select(_) => true,
        };
        if is_given {
            rules::refuse_value(&table.schema, column)?;
        }
    }
    Ok(())
}

/// Names of the columns of an INSERT; `None`: it has no list.
fn names_of(insert: &ast::Insert) -> Option<Vec<String>> {
    let last = |name: &ast::ObjectName| name.0.last().and_then(|p| p.as_ident()).map(|i| i.value.clone());
    if !insert.assignments.is_empty() {
        return Some(targets(&insert.assignments));
    }
    let names: Vec<String> = insert.columns.iter().map(|c| last(c).unwrap_or_default()).collect();
    (!names.is_empty()).then_some(names)
}

/// Places of a query's texts that go into columns of bytes, and in whose bytes.
pub fn texts_as_bytes(
    schema: &TableSchema,
    places: &[Option<usize>],
    select: &Select,
    kinds: &[Kind],
) -> Vec<(usize, Charset)> {
    let of_bytes = schema.columns.iter().zip(places).filter(|(column, _)| is_of_bytes(column.ty));
    let places = of_bytes.filter_map(|(_, place)| *place);
    places.filter_map(|at| Some((at, has_own_bytes(&select.outputs.get(at)?.expr, kinds)?.charset()))).collect()
}

pub fn is_of_bytes(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Binary { .. } | ColumnType::VarBinary { .. } | ColumnType::Blob { .. })
}

fn value_or_default(builder: &mut Builder<'_>, e: &ast::Expr) -> Result<Option<Expr>, Unplanned> {
    match e {
        ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default") => Ok(None),
        e => Ok(Some(builder.build(e)?)),
    }
}
