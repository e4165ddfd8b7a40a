//! MATCH ... AGAINST: a subquery without a row of the block around reads all rows of the table and says which it finds, by their primary keys and with their ranks.

use apus_types::{ColumnType, TableSchema};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr};

use super::{
    Builder,
    aggregate::{Aggregate, AggregateKind},
    function::call,
};
use crate::{
    errors::{self, Result},
    expr::{ColumnRef, Expr, Func, Kind, coercion::collation_of},
    full_text::query::Mode,
    parse::dialect::functions::call_of,
    plan::{
        self,
        query::{Asked, Subquery},
    },
};

/// The aggregate of the subquery, as a function.
pub const SEARCH: &str = " search";

fn mode_of(mode: &ast::Expr) -> Mode {
    match mode {
        ast::Expr::Value(v) if v.to_string().contains("boolean") => Mode::Boolean,
        ast::Expr::Value(v) if v.to_string().contains("expansion") => Mode::Expansion,
        _ => Mode::Natural,
    }
}

/// The primary key of the row, `first` being the slot of the table's first column.
fn key_of(table: &TableSchema, first: u16) -> Expr {
    let column = |&c: &u16| Expr::Column(ColumnRef { slot: first + c, ty: table.columns[usize::from(c)].ty });
    call(Func::RowKey, table.primary_key.iter().map(column).collect())
}

/// Whether this is the rank of a row; the columns of its key then.
pub fn ranked(e: &Expr) -> Option<Vec<&Expr>> {
    match e {
        Expr::Call(Func::FullTextRank, parts, _) => parts.get(1).map(Expr::children),
        _ => None,
    }
}

impl Builder<'_> {
    pub(super) fn match_against(&mut self, mode: &ast::Expr, query: &ast::Expr, columns: &[ast::Expr]) -> Result<Expr> {
        let asked = self.build(query)?;
        if !asked.is_constant() || asked.any(|e| matches!(e, Expr::Given(_, _, true))) {
            return Err(errors::wrong_arguments("AGAINST"));
        }
        let scope = self.scope.clone().ok_or_else(|| errors::not_supported("MATCH ... AGAINST here"))?;
        let mut slots = Vec::with_capacity(columns.len());
        for column in columns {
            match self.build(column)? {
                Expr::Column(c) => slots.push(c.slot),
                _ => return Err(errors::wrong_arguments("MATCH")),
            }
        }
        let of_one = slots.first().and_then(|slot| scope.of_slot(*slot));
        let visible = of_one.ok_or_else(|| errors::wrong_arguments("MATCH"))?;
        let table = &visible.table.schema;
        let last = visible.first + table.columns.len() as u16;
        if slots.iter().any(|slot| !(visible.first..last).contains(slot)) {
            return Err(errors::wrong_arguments("MATCH"));
        }
        let mut wanted: Vec<u16> = slots.iter().map(|slot| slot - visible.first).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let is_of = |columns: &[u16]| columns.len() == wanted.len() && columns.iter().all(|c| wanted.contains(c));
        if !table.full_texts.iter().any(|index| !index.invisible && is_of(&index.columns)) {
            return Err(errors::no_full_text());
        }
        let names = wanted.iter().map(|&c| table.columns[usize::from(c)].name.as_str());
        let search = searching(table, mode, query, names)?;
        let query = self.bound(&search, false)?;
        let ty = ColumnType::Blob { length: u32::MAX };
        let found = self.attach(Subquery { query, asked: Asked::Found, ty })?;
        Ok(call(Func::FullTextRank, vec![found, key_of(table, visible.first)]))
    }

    /// The aggregate, in a block over the one table.
    pub(super) fn search(&mut self, args: &[FunctionArg]) -> Result<Expr> {
        let internal = || errors::internal("a full-text search without its table");
        let mut plain = args.iter().filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
            _ => None,
        });
        let mode = mode_of(plain.next().ok_or_else(internal)?);
        let mut parts = plain.map(|e| self.build(e)).collect::<Result<Vec<_>>>()?;
        let scope = self.scope.clone().ok_or_else(internal)?;
        let [visible] = scope.tables.as_slice() else { return Err(internal()) };
        let collation = collation_of(parts.get(1).ok_or_else(internal)?, &[]);
        parts.insert(1, key_of(&visible.table.schema, visible.first));
        let argument = Some(call(Func::FullTextRow, parts));
        let (kind, function) = (Kind::Bytes, AggregateKind::Search(mode));
        let (separator, order) = (Vec::new(), Vec::new());
        let aggregate = Aggregate { function, distinct: false, argument, kind, separator, order, collation };
        Ok(Expr::Aggregate(self.number_of(aggregate), kind, collation))
    }
}

/// `SELECT search(mode, query, columns) FROM table`.
fn searching<'n>(
    table: &TableSchema,
    mode: &ast::Expr,
    query: &ast::Expr,
    names: impl Iterator<Item = &'n str>,
) -> Result<ast::Query> {
    let internal = || errors::internal("the query of a full-text search is no SELECT");
    let named = |name: &str| ast::Ident::with_quote('`', name);
    let ast::Statement::Query(mut outer) = plan::syntax::parse("SELECT 1 FROM searched")? else {
        return Err(internal());
    };
    let ast::SetExpr::Select(select) = &mut *outer.body else { return Err(internal()) };
    let Some(ast::TableFactor::Table { name, .. }) = select.from.first_mut().map(|from| &mut from.relation) else {
        return Err(internal());
    };
    *name = ast::ObjectName::from(vec![named(&table.database), named(&table.name)]);
    let columns = names.map(|name| ast::Expr::Identifier(named(name)));
    let args = [mode.clone(), query.clone()].into_iter().chain(columns).collect();
    select.projection = vec![ast::SelectItem::UnnamedExpr(call_of(SEARCH, args))];
    Ok(*outer)
}
