//! What a name means in an expression: a variable of a procedure, an alias of the select list, a column of the block or of one around it.

use sqlparser::ast;

use super::{Builder, Precedence, WindowPlace};
use crate::{
    errors::{self, Result},
    expr::{ColumnRef, Expr},
    plan::{Planner, window::has_window},
    value::datum::Datum,
    wire::SqlError,
};

impl Builder<'_> {
    pub(super) fn identifier(&mut self, name: &ast::Ident) -> Result<Expr> {
        if name.quote_style.is_none() && name.value.starts_with('@') {
            return self.variable(&name.value);
        }
        if name.quote_style == Some('"') {
            return Ok(Expr::Const(Datum::text(name.value.clone())));
        }
        if let Some(known) = self.variable_of_procedure(&name.value) {
            return Ok(match known.ty {
                Some(ty) => Expr::Variable(known.place, ty),
                None => Expr::Param(known.place),
            });
        }
        let alias = self.aliases.iter().find(|(a, _)| a.eq_ignore_ascii_case(&name.value)).map(|(_, e)| e.clone());
        let column = self.column(&name.value)?;
        let column_first = match self.precedence {
            Precedence::Column => true,
            Precedence::Alias => false,
            Precedence::Grouped => column.as_ref().is_some_and(|c| self.grouped.contains(c)),
        };
        let is_alias = alias.is_some() && !(column_first && column.is_some());
        let found = if column_first { column.or(alias) } else { alias.or(column) };
        if let (Some(planner), Some(scope), false) = (self.planner, &self.scope, is_alias) {
            match &found {
                Some(_) => planner.read_name(scope, &[], &name.value),
                None => planner.read_outer(&[], name),
            }
            planner.note_name(name, || match &found {
                Some(_) => scope.owner(&name.value),
                None => planner.frames.outer_owner(&[], &name.value),
            });
        }
        if self.window_place != WindowPlace::Here && found.as_ref().is_some_and(has_window) {
            return Err(errors::alias_of_window(&name.value, self.clause));
        }
        match (found, self.planner) {
            (Some(found), _) => Ok(found),
            (None, Some(planner)) => {
                let outer = planner.frames.outer_column(&[], &name.value, self.clause)?;
                outer.ok_or_else(|| self.unknown(planner, &name.value, &name.value))
            }
            (None, None) => Err(errors::unknown_column(&name.value, self.clause)),
        }
    }

    fn column(&self, name: &str) -> Result<Option<Expr>> {
        if let Some(scope) = &self.scope {
            return scope.column(name, self.clause);
        }
        let Some((table, slot)) = self.table.and_then(|t| Some((t, t.column_no(name)?))) else { return Ok(None) };
        let visible = !name.starts_with('#');
        Ok(visible.then(|| Expr::Column(ColumnRef { slot, ty: table.columns[usize::from(slot)].ty })))
    }

    fn unknown(&self, planner: &Planner<'_>, column: &str, written: &str) -> SqlError {
        if let Some(scope) = &self.scope {
            planner.read_unknown(scope, column);
        }
        errors::unknown_column(written, self.clause)
    }

    pub(super) fn compound(&mut self, parts: &[ast::Ident]) -> Result<Expr> {
        let names: Vec<&str> = parts.iter().map(|p| p.value.as_str()).collect();
        if let Some(variable) = self.variable_of_row(&names) {
            return Ok(variable);
        }
        if names.first().is_some_and(|n| n.starts_with("@@")) {
            return self.variable(&names.join("."));
        }
        let unknown = || errors::unknown_column(&names.join("."), self.clause);
        let (&column, qualifier) = names.split_last().ok_or_else(unknown)?;
        let table_part = qualifier.last().copied().unwrap_or("");
        if let (Some(alias), Some(table)) = (&self.new_alias, self.table)
            && alias.eq_ignore_ascii_case(table_part)
        {
            let slot = table.column_no(column).ok_or_else(unknown)?;
            return Ok(Expr::NewColumn(ColumnRef { slot, ty: table.columns[usize::from(slot)].ty }));
        }
        if let (Some(scope), Some(planner)) = (&self.scope, self.planner) {
            let database = qualifier.len().checked_sub(2).map(|at| qualifier[at]);
            let found = scope.qualified(database, table_part, column);
            match &found {
                Some(_) => planner.read_name(scope, qualifier, column),
                None => parts.last().into_iter().for_each(|name| planner.read_outer(qualifier, name)),
            }
            if let Some(last) = parts.last() {
                planner.note_name(last, || match &found {
                    Some(_) => scope.owner_of(database, table_part),
                    None => planner.frames.outer_owner(qualifier, column),
                });
            }
            if let Some(found) = found {
                return Ok(found);
            }
            return planner.frames.outer_column(qualifier, column, self.clause)?.ok_or_else(unknown);
        }
        let table_fits = table_part == self.table_name
            && (qualifier.len() < 2 || self.table.is_some_and(|t| qualifier.first().is_some_and(|d| *d == t.database)));
        if !table_fits {
            return Err(unknown());
        }
        self.column(column)?.ok_or_else(unknown)
    }
}
