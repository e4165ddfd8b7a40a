//! Functions, aggregates and windows.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments};

use super::{Writer, quoted, refused};
use crate::{
    errors::{self, Result},
    parse::dialect::MATCH,
    plan::bind::function::is_native,
};

impl Writer<'_> {
    /// The name of a stored function, with its database.
    fn stored_function(&self, f: &ast::Function) -> Option<String> {
        let names: Vec<&str> = f.name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
        match names.as_slice() {
            _ if self.definition.is_some() => None,
            [database, name] if self.omitted == Some(*database) => Some(quoted(name)),
            [database, name] => Some(format!("{}.{}", quoted(database), quoted(name))),
            // What begins with a blank is not a name that anybody wrote.
            [name] if !name.starts_with(' ') && !is_native(name) => {
                Some(format!("{}.{}", quoted(self.database), quoted(name)))
            }
            _ => None,
        }
    }

    pub(super) fn function(&mut self, f: &ast::Function) -> Result<()> {
        let name = match self.stored_function(f) {
            Some(stored) => stored,
            None => {
                let name = f.name.to_string().to_ascii_lowercase().replace('`', "");
                self.function_name(&name).to_owned()
            }
        };
        let list = match &f.args {
            FunctionArguments::None => {
                self.put(&format!("{name}()"));
                return Ok(());
            }
            FunctionArguments::Subquery(_) => return Err(refused(&f.to_string())),
            FunctionArguments::List(list) => list,
        };
        let mut args = Vec::with_capacity(list.args.len());
        for arg in &list.args {
            args.push(match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => None,
                other => return Err(refused(&other.to_string())),
            });
        }
        if let (MATCH, [Some(ast::Expr::Value(mode)), Some(query), columns @ ..]) = (name.as_str(), args.as_slice()) {
            let ast::Value::SingleQuotedString(mode) = &mode.value else { return Err(refused(&f.to_string())) };
            self.put("(match ");
            self.list(columns, |w, column| column.map_or(Ok(()), |column| w.expr(column)))?;
            self.put(" against (");
            self.expr(query)?;
            self.put(mode);
            self.put("))");
            return Ok(());
        }
        if self.as_operation(&name, &args)? {
            return Ok(());
        }
        if let [Some(moment), Some(ast::Expr::Interval(by))] = args[..]
            && ["date_add", "date_sub", "adddate", "subdate"].contains(&name.as_str())
        {
            self.put("(");
            self.expr(moment)?;
            self.put(if name == "date_add" || name == "adddate" { " + " } else { " - " });
            self.interval(by)?;
            self.put(")");
            return Ok(());
        }
        if let ("json_value", &[Some(document), Some(path), Some(returns), Some(empty), Some(error)]) =
            (name.as_str(), args.as_slice())
        {
            return self.json_value([document, path, returns, empty, error]);
        }
        self.put(&format!("{name}("));
        if matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct)) {
            self.put("distinct ");
        }
        self.list(&args, |w, arg| match arg {
            Some(e) => w.expr(e),
            None => {
                w.put("0");
                Ok(())
            }
        })?;
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(keys) => {
                    self.put(" order by ");
                    self.order(keys)?;
                }
                FunctionArgumentClause::Separator(text) => {
                    self.put(" separator ");
                    self.value(&text.value)?;
                }
                other => return Err(refused(&other.to_string())),
            }
        }
        self.put(")");
        match &f.over {
            None => {}
            Some(ast::WindowType::NamedWindow(name)) => self.put(&format!(" over {}", quoted(&name.value))),
            Some(ast::WindowType::WindowSpec(spec)) => {
                self.put(" over ");
                self.window(spec)?;
            }
        }
        Ok(())
    }

    pub(super) fn window(&mut self, spec: &ast::WindowSpec) -> Result<()> {
        self.put("(");
        if let Some(name) = &spec.window_name {
            self.put(&format!("{} ", quoted(&name.value)));
        }
        if !spec.partition_by.is_empty() {
            self.put("partition by ");
            self.exprs(&spec.partition_by)?;
            self.put(" ");
        }
        if !spec.order_by.is_empty() {
            self.put("order by ");
            self.order(&spec.order_by)?;
            self.put(" ");
        }
        if let Some(frame) = &spec.window_frame {
            let bound = |b: &ast::WindowFrameBound| b.to_string().to_ascii_lowercase();
            let units = frame.units.to_string().to_ascii_lowercase();
            match &frame.end_bound {
                Some(end) => self.put(&format!("{units} between {} and {}", bound(&frame.start_bound), bound(end))),
                None => self.put(&format!("{units} {}", bound(&frame.start_bound))),
            }
        }
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.put(")");
        Ok(())
    }

    pub(super) fn interval(&mut self, i: &ast::Interval) -> Result<()> {
        let Some(unit) = &i.leading_field else { return Err(errors::syntax("INTERVAL")) };
        self.put("interval ");
        self.expr(&i.value)?;
        self.put(&format!(" {}", unit.to_string().to_ascii_lowercase()));
        Ok(())
    }
}
