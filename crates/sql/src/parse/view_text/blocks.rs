//! Query blocks: WITH, set operations, the clauses of a SELECT.

use sqlparser::ast::{self, GroupByExpr, LimitClause, OrderByKind, SelectItem, SetExpr};

use super::{Writer, display_name, is_dual, quoted, refused};
use crate::errors::Result;

impl Writer<'_> {
    /// `names`: its columns get their names.
    pub(super) fn query(&mut self, q: &ast::Query, names: bool) -> Result<()> {
        let (known, in_list) = (self.common.len(), std::mem::take(&mut self.in_select_list));
        self.depth += 1;
        if let Some(with) = &q.with {
            self.put(if with.recursive { "with recursive " } else { "with " });
            self.list(&with.cte_tables, |w, cte| {
                let name = cte.alias.name.value.clone();
                if with.recursive {
                    w.common.push(name.clone());
                }
                w.put(&quoted(&name));
                w.alias_columns(&cte.alias)?;
                w.put(" as (");
                w.query(&cte.query, true)?;
                w.put(")");
                w.common.push(name);
                Ok(())
            })?;
            self.put(" ");
        }
        self.body(&q.body, names)?;
        if let Some(by) = &q.order_by {
            let OrderByKind::Expressions(list) = &by.kind else { return Err(refused("ORDER BY ALL")) };
            self.put(" order by ");
            self.order(list)?;
        }
        self.limit(q.limit_clause.as_ref())?;
        self.common.truncate(known);
        self.depth -= 1;
        self.in_select_list = in_list;
        Ok(())
    }

    fn limit(&mut self, clause: Option<&LimitClause>) -> Result<()> {
        let (limit, offset) = match clause {
            None => return Ok(()),
            Some(LimitClause::LimitOffset { limit: Some(limit), offset, .. }) => {
                (limit, offset.as_ref().map(|o| &o.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (limit, Some(offset)),
            Some(_) => return Err(refused("this LIMIT")),
        };
        self.put(" limit ");
        if let Some(offset) = offset {
            self.expr(offset)?;
            self.put(",");
        }
        self.expr(limit)
    }

    pub(super) fn order(&mut self, list: &[ast::OrderByExpr]) -> Result<()> {
        self.list(list, |w, key| {
            w.expr(&key.expr)?;
            if matches!(key.options.sort, Some(ast::OrderBySort::Desc)) {
                w.put(" desc");
            }
            Ok(())
        })
    }

    fn body(&mut self, body: &SetExpr, names: bool) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, names),
            SetExpr::Query(query) => {
                self.put("(");
                self.query(query, names)?;
                self.put(")");
                Ok(())
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.body(left, names)?;
                self.put(&format!(" {} ", op.to_string().to_ascii_lowercase()));
                if matches!(set_quantifier, ast::SetQuantifier::All) {
                    self.put("all ");
                }
                self.headings.clear();
                let nested = matches!(**right, SetExpr::SetOperation { .. });
                self.put(if nested { "(" } else { "" });
                self.body(right, names)?;
                self.put(if nested { ")" } else { "" });
                Ok(())
            }
            SetExpr::Values(values) => {
                self.put("values ");
                self.list(&values.rows, |w, row| {
                    w.put("row(");
                    w.exprs(&row.content)?;
                    w.put(")");
                    Ok(())
                })
            }
            other => Err(refused(&other.to_string())),
        }
    }

    fn select(&mut self, select: &ast::Select, names: bool) -> Result<()> {
        self.put("select ");
        if matches!(select.distinct, Some(ast::Distinct::Distinct)) {
            self.put("distinct ");
        }
        self.in_select_list = self.depth == 1;
        self.items(&select.projection, names)?;
        self.in_select_list = false;
        if !select.from.is_empty() && !is_dual(&select.from) {
            self.put(" from ");
            self.from(&select.from)?;
        }
        if let Some(condition) = &select.selection {
            self.put(" where ");
            self.expr(condition)?;
        }
        let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else { return Err(refused("GROUP BY ALL")) };
        if !keys.is_empty() {
            self.put(" group by ");
            match keys.as_slice() {
                [ast::Expr::Rollup(keys)] => {
                    self.list(keys, |w, key| w.exprs(key))?;
                    self.put(" with rollup");
                }
                keys => self.exprs(keys)?,
            }
            if !modifiers.is_empty() {
                self.put(" with rollup");
            }
        }
        if let Some(condition) = &select.having {
            self.put(" having ");
            self.expr(condition)?;
        }
        if !select.named_window.is_empty() {
            self.put(" window ");
            self.list(&select.named_window, |w, ast::NamedWindowDefinition(name, what)| {
                w.put(&format!("{} as ", quoted(&name.value)));
                match what {
                    ast::NamedWindowExpr::NamedWindow(other) => w.put(&format!("({})", quoted(&other.value))),
                    ast::NamedWindowExpr::WindowSpec(spec) => w.window(spec)?,
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn items(&mut self, items: &[SelectItem], names: bool) -> Result<()> {
        let outermost = self.depth == 1;
        let mut headings =
            if outermost { std::mem::take(&mut self.headings).into_iter() } else { Vec::new().into_iter() };
        let mut is_first = true;
        for item in items {
            if !std::mem::take(&mut is_first) {
                self.put(",");
            }
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(e) => (e, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value.clone())),
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    let at = options.wildcard_token.0.span.start;
                    let notes = self.notes.and_then(|n| n.stars.get(&at));
                    let columns = notes.cloned().ok_or_else(|| refused(&item.to_string()))?;
                    self.list(&columns, |w, (database, table, column)| {
                        w.column(database, table, column);
                        if names {
                            let name = headings.next().unwrap_or_else(|| column.clone());
                            w.put(&format!(" AS {}", quoted(&name)));
                        }
                        Ok(())
                    })?;
                    continue;
                }
                other => return Err(refused(&other.to_string())),
            };
            self.expr(expr)?;
            let heading = headings.next();
            let own = match expr {
                ast::Expr::Identifier(i) => i.value.clone(),
                ast::Expr::CompoundIdentifier(parts) => parts.last().map(|i| i.value.clone()).unwrap_or_default(),
                e => display_name(e),
            };
            match name {
                Some(name) => self.put(&format!(" AS {}", quoted(&name))),
                None if names => self.put(&format!(" AS {}", quoted(&heading.unwrap_or(own)))),
                None => {}
            }
        }
        Ok(())
    }
}
