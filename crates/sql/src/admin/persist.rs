//! SET PERSIST, SET PERSIST_ONLY and RESET PERSIST ([`crate::variables::persisted`] says what they keep).

use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::token::Tokens,
    session::{Session, engine::SqlEngine},
    value::datum::Datum,
    wire::SqlError,
};

fn is_not_there(name: &str) -> SqlError {
    SqlError::new(3615, b"HY000", format!("Variable {name} does not exist in persisted config file"))
}

impl SqlEngine {
    /// Keeps a value for SQL nodes that begin from now on.
    ///
    /// # Errors
    /// 1235: it cannot be kept. The cluster does not answer.
    pub(crate) async fn persist(&self, session: &Session, name: &str, value: Option<&Datum<'_>>) -> Result<()> {
        let Some(store) = &self.store else { return Err(errors::not_supported("SET PERSIST without accounts")) };
        let (name, text) = session.env.variables.persisted_value(name, value)?;
        if text.contains('\0') {
            return Err(errors::wrong_variable_value(name, &text));
        }
        store
            .change_persisted(|values| {
                values.insert(name.to_owned(), text.clone());
                Ok(())
            })
            .await
    }

    /// Behind RESET PERSIST.
    pub(crate) async fn reset_persist(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        let if_exists = t.word("if") && {
            t.expect("exists")?;
            true
        };
        let name = if if_exists || !t.at_end() { Some(t.identifier()?.to_ascii_lowercase()) } else { None };
        t.end()?;
        let one_of = Privileges::SUPER.union(Privileges::SYSTEM_VARIABLES_ADMIN);
        self.require(session, one_of, "SYSTEM_VARIABLES_ADMIN or SUPER").await?;
        let Some(store) = &self.store else { return Err(errors::not_supported("RESET PERSIST without accounts")) };
        let mut is_known = true;
        store
            .change_persisted(|values| {
                match &name {
                    None => values.clear(),
                    Some(name) => is_known = values.remove(name).is_some(),
                }
                Ok(())
            })
            .await?;
        match name.filter(|_| !is_known) {
            Some(name) if if_exists => session.warn_error(&is_not_there(&name)),
            Some(name) => return Err(is_not_there(&name)),
            None => {}
        }
        Ok(())
    }
}
