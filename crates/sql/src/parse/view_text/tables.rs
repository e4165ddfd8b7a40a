//! FROM: each join in parentheses of its own.

use sqlparser::ast::{self, JoinConstraint, JoinOperator, TableFactor, TableIndexHintType, TableIndexHints};

use super::{Writer, parts, quoted, refused};
use crate::errors::{self, Result};

impl Writer<'_> {
    pub(super) fn from(&mut self, list: &[ast::TableWithJoins]) -> Result<()> {
        let [first, rest @ ..] = list else { return Ok(()) };
        rest.iter().for_each(|_| self.put("("));
        self.chain(first)?;
        for other in rest {
            self.put(" join ");
            self.chain(other)?;
            self.put(")");
        }
        Ok(())
    }

    fn chain(&mut self, chain: &ast::TableWithJoins) -> Result<()> {
        chain.joins.iter().for_each(|_| self.put("("));
        self.factor(&chain.relation)?;
        for join in &chain.joins {
            use JoinOperator as J;
            let (word, on) = match &join.join_operator {
                J::Join(on) | J::Inner(on) | J::CrossJoin(on) => ("join", on),
                J::StraightJoin(on) => ("straight_join", on),
                J::Left(on) | J::LeftOuter(on) => ("left join", on),
                J::Right(on) | J::RightOuter(on) => ("right join", on),
                _ => return Err(refused("this form of JOIN")),
            };
            let natural = if matches!(on, JoinConstraint::Natural) { "natural " } else { "" };
            self.put(&format!(" {natural}{word} "));
            self.factor(&join.relation)?;
            match on {
                JoinConstraint::On(condition) => {
                    self.put(" on(");
                    self.expr(condition)?;
                    self.put(")");
                }
                JoinConstraint::Using(names) => {
                    let names: Vec<String> = names.iter().filter_map(|n| parts(n).last().map(|n| quoted(n))).collect();
                    self.put(&format!(" using ({})", names.join(",")));
                }
                JoinConstraint::Natural | JoinConstraint::None => {}
            }
            self.put(")");
        }
        Ok(())
    }

    pub(super) fn alias_columns(&mut self, alias: &ast::TableAlias) -> Result<()> {
        if alias.columns.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = alias.columns.iter().map(|c| quoted(&c.name.value)).collect();
        self.put(&format!(" ({})", names.join(",")));
        Ok(())
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<()> {
        match factor {
            TableFactor::Table { name, alias, index_hints, .. } => {
                match parts(name)[..] {
                    [table] if self.common.iter().any(|c| c.eq_ignore_ascii_case(table)) => self.put(&quoted(table)),
                    [table] if self.database.is_empty() => self.put(&quoted(table)),
                    [table] => {
                        self.databases.push(self.database.to_owned());
                        self.column("", self.database, table);
                    }
                    [database, table] => {
                        self.databases.push(database.to_owned());
                        self.column(database, "", table);
                    }
                    _ => return Err(errors::syntax(&name.to_string())),
                }
                if let Some(alias) = alias {
                    self.put(&format!(" {}", quoted(&alias.name.value)));
                }
                let is_ignored = |hint: &&TableIndexHints| hint.hint_type == TableIndexHintType::Ignore;
                let (ignored, others): (Vec<_>, Vec<_>) = index_hints.iter().partition(is_ignored);
                for hint in ignored.into_iter().chain(others) {
                    let used_for = hint.for_clause.as_ref().map_or_else(String::new, |clause| format!(" FOR {clause}"));
                    let names: Vec<String> = hint.index_names.iter().map(|name| quoted(&name.value)).collect();
                    self.put(&format!(" {} INDEX{used_for} ({})", hint.hint_type, names.join(",")));
                }
                Ok(())
            }
            TableFactor::Derived { lateral, subquery, alias, .. } => {
                self.put(if *lateral { "lateral (" } else { "(" });
                self.query(subquery, true)?;
                self.put(")");
                let Some(alias) = alias else { return Err(errors::derived_without_alias()) };
                self.put(&format!(" {}", quoted(&alias.name.value)));
                self.alias_columns(alias)
            }
            TableFactor::JsonTable { json_expr, json_path, columns, alias } => {
                let alias = alias.as_ref().ok_or_else(errors::json_table_without_alias)?;
                self.json_table(json_expr, &json_path.value, columns)?;
                self.put(&format!(" {}", quoted(&alias.name.value)));
                Ok(())
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                // A chain of joins stands in parentheses of its own.
                self.chain(table_with_joins)
            }
            other => Err(refused(&other.to_string())),
        }
    }
}
