//! EXPLAIN of a statement: it is planned, run where that is asked for, and what is to be said goes to the client or into a variable.

use super::{Form, Request, columns, json, tree};
use crate::{
    admin::show,
    catalog::Catalog,
    errors::{self, Result},
    exec,
    expr::probe::Counts,
    plan::{Plan, Select},
    server::Output,
    session::{self, Fail, Session, engine::SqlEngine},
    value::datum::Datum,
};

impl SqlEngine {
    /// Answers an EXPLAIN.
    pub(crate) async fn explain(
        &self,
        session: &mut Session,
        request: &Request,
        statement: &str,
        out: &mut Output<'_>,
    ) -> Result<()> {
        session.clear_warnings();
        if let Some(database) = &request.database {
            self.find_database(session, database).await?;
        }
        let catalog = self.catalog_of(session).await?;
        let mut plan = self.plan_explained(session, &catalog, request, statement).await?;
        plan.names().hints.iter().for_each(|told| {
            session.tell_hints(told);
        });
        self.authorize(session, &plan.names().needs).await?;
        let statistics = &catalog.statistics;
        let before = statistics.generation();
        self.learn_sizes(&catalog, &plan).await;
        if statistics.generation() != before {
            plan = self.plan_explained(session, &catalog, request, statement).await?;
        }
        session.locked.iter().try_for_each(|locked| locked.check(&plan))?;
        plan.names().outside.iter().for_each(|text| session.warn("Note", 1276, text.clone()));
        let counts = match plan.reading().filter(|_| request.is_analyzed) {
            Some(select) => Some(self.count_select(session, &catalog, select).await?),
            None => None,
        };
        let text = match request.form {
            Form::Rows => {
                let warnings = session.warning_count();
                show::warned_table(session, out, &columns::COLUMNS, &columns::rows(&plan, statistics), warnings);
                return Ok(());
            }
            Form::Tree => tree::text(&plan, statistics, counts.as_ref()),
            Form::Json => json::text(&plan, statistics, statement, counts.as_ref()),
        };
        let Some(variable) = &request.variable else {
            let warnings = session.warning_count();
            show::warned_table(session, out, &["EXPLAIN"], &[vec![Some(text)]], warnings);
            return Ok(());
        };
        session.env.assign(variable, Datum::text(text))?;
        session.env.keep_assigned();
        session.env.found_rows = 1; // the document counts as one, as in MySQL
        session::ok(session, out)
    }

    /// The plan of a statement, whose names may be of another database than the session's.
    async fn plan_explained(
        &self,
        session: &mut Session,
        catalog: &Catalog,
        request: &Request,
        statement: &str,
    ) -> Result<Plan> {
        let limit = session.env.variables.select_limit;
        let Some(database) = &request.database else {
            return self.plan_measured(catalog, &session.env, statement, Vec::new(), limit).await;
        };
        let before = session.env.database.replace(database.clone());
        let plan = self.plan_measured(catalog, &session.env, statement, Vec::new(), limit).await;
        session.env.database = before;
        plan
    }

    /// Runs a SELECT for what its steps do.
    async fn count_select(&self, session: &mut Session, catalog: &Catalog, select: &Select) -> Result<Counts> {
        if select.lock.is_some() || select.locked.is_some() {
            return Err(errors::not_supported("EXPLAIN ANALYZE of a locking read"));
        }
        let reads = session.reads.clone();
        let cluster = self.cluster(catalog, &reads);
        session.fix_characteristics();
        let sent = if session.own.has_waiting() { exec::send_waiting(session).await } else { Ok(()) };
        let counted = match sent {
            Ok(()) => exec::query::counted(cluster, session, select).await,
            Err(e) => Err(e),
        };
        session.env.take_notes().iter().for_each(|e| session.warn_error(e));
        counted.map_err(|fail| match fail {
            Fail::Sql(e) => e,
            Fail::Client(e) => errors::from_client(&e),
        })
    }
}
