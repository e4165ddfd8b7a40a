//! What a body changes of the session around it while it runs, and how that is as before when it has ended.

use apus_types::collate::{Charset, Collation};

use crate::{
    accounts::identity::Identity,
    errors::Result,
    program::routine::{Routine, failures},
    session::Session,
    value::datum::Datum,
};

/// What a body is run with.
pub struct Surroundings<'r> {
    pub database: &'r str,
    pub database_collation: &'r str,
    pub sql_mode: &'r str,
    /// `character_set_client` and `collation_connection` of who made it.
    pub spoken: (&'r str, &'r str),
    /// `None`: it acts for who calls.
    pub definer: Option<&'r (String, String)>,
}

impl Routine {
    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        let d = &self.definition;
        Surroundings {
            database: &self.database,
            database_collation: &d.database_collation,
            sql_mode: &d.sql_mode,
            spoken: (&d.charset, &d.collation),
            definer: (!d.invoker).then_some(&d.definer),
        }
    }
}

/// The state of a session that a call changes for a while.
pub struct Around {
    pub(super) database: Option<String>,
    of_database: Option<Collation>,
    sql_mode: Datum<'static>,
    spoken: (Charset, Collation),
    me: Option<Identity>,
}

/// The session as the body of a procedure finds it.
pub fn enter(session: &mut Session, surroundings: &Surroundings<'_>) -> Result<Around> {
    let Surroundings { database, database_collation, sql_mode, spoken, definer } = *surroundings;
    let me = session.env.me.clone();
    if let (Some(me), Some((user, host))) = (session.env.me.as_mut(), definer) {
        let definer = me.account_of(user, host).cloned().ok_or_else(|| failures::no_definer(user, host))?;
        if definer.name != me.account.name {
            *me = Identity::new(definer, me.directory.clone(), 0, true);
        }
    }
    let mode_of_body = Datum::text(sql_mode);
    let sql_mode = session.env.variables.get("sql_mode", false)?;
    session.env.variables.set("sql_mode", Some(&mode_of_body))?;
    let now = &session.env.variables;
    let (client, connection) = now.spoken();
    let client = Charset::from_name(spoken.0).unwrap_or(client);
    let connection = Collation::from_name(spoken.1).unwrap_or(connection);
    let spoken = session.env.variables.speak_as((client, connection));
    let database = session.env.database.replace(database.to_owned());
    let of_database = Collation::from_name(&session.env.variables.get("collation_database", false)?.as_string());
    session.env.variables.set_database(Collation::from_name(database_collation));
    Ok(Around { database, of_database, sql_mode, spoken, me })
}

pub fn leave(session: &mut Session, around: Around) -> Result<()> {
    session.env.database = around.database;
    session.env.variables.set_database(around.of_database);
    session.env.variables.speak_as(around.spoken);
    session.env.me = around.me;
    session.env.variables.set("sql_mode", Some(&around.sql_mode)).map(|_| ())
}
