//! What stored programs bring into expressions: variables of procedures, columns of NEW and OLD, calls of stored functions.

use sqlparser::ast;

use super::Builder;
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    expr::Expr,
    program::{
        function::{Stored, is_reading},
        routine::{
            Kind,
            code::{Name, row_name, row_word},
            failures,
        },
    },
};

impl<'a> Builder<'a> {
    /// It hides a column of its name, but not in the text of a view.
    pub(super) fn variable_of_procedure(&self, name: &str) -> Option<&'a Name> {
        let known = self.names?.find(name)?;
        self.planner.is_none_or(|planner| planner.views.innermost().is_none()).then_some(known)
    }

    /// `NEW.column` or `OLD.column` in a trigger.
    pub(super) fn variable_of_row(&self, names: &[&str]) -> Option<Expr> {
        let [word, column] = names else { return None };
        let known = self.variable_of_procedure(&row_name(row_word(word)?, column))?;
        known.ty.map(|ty| Expr::Variable(known.place, ty))
    }
}

impl Builder<'_> {
    /// The call of a stored function.
    ///
    /// # Errors
    /// 1046, 1305, 1318: there is none of this name that takes so many arguments.
    pub(super) fn stored_function(&mut self, f: &ast::Function, args: &[ast::Expr]) -> Result<Expr> {
        let names: Vec<&str> = f.name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
        let Some(planner) = self.functions else {
            return Err(errors::unknown_function(&self.database, &names.join(".")));
        };
        let (database, name) = match names.as_slice() {
            [name] => {
                let own = planner.views.database().or_else(|| planner.env.database.clone());
                (own.ok_or_else(errors::no_database)?, *name)
            }
            [database, name] => ((*database).to_owned(), *name),
            _ => return Err(errors::syntax(&f.to_string())),
        };
        let view = planner.views.innermost();
        if view.is_none()
            && let Some(me) = &planner.env.me
            && !me.rights.on_routine(Kind::Function, &database, name).contains(Privileges::EXECUTE)
        {
            // Whoever may not call it does not learn whether it is there.
            let (user, host) = (&planner.env.user, &planner.env.host);
            return Err(failures::denied("execute", user, host, &format!("{database}.{name}")));
        }
        let found = planner.catalog.routine(Kind::Function, &database, name).cloned();
        let routine = found.ok_or_else(|| errors::unknown_function(&database, name))?;
        let program = routine.program()?;
        let returned = program.returns.and_then(|place| program.variables[place].column.as_ref());
        let ty = returned.map(|column| column.ty).ok_or_else(|| errors::internal("a function without a type"))?;
        if program.parameters.len() != args.len() {
            let (expected, got) = (program.parameters.len(), args.len());
            return Err(failures::wrong_arguments(Kind::Function, &routine.full_name(), expected, got));
        }
        let arguments = self.list(args)?;
        let is_reading = is_reading(planner.catalog, &routine);
        let heading = f.to_string().replace('`', "");
        let stored = Stored { routine, ty, heading, is_reading, view };
        planner.functions.borrow_mut().push(stored.clone());
        Ok(Expr::Stored(Box::new(stored), arguments))
    }
}
