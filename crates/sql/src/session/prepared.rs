//! Prepared statements, and plans that are kept with what they are good for.

use apus_types::collate::{Charset, Collation};
use std::rc::Rc;

use crate::{catalog::Catalog, expr::env::Env, monitor::digests::Place, parse::digest::Syntax, plan::Plan};

pub struct Prepared {
    pub sql: Vec<u8>,
    /// By which `sql` is read, whatever the session's is now.
    pub syntax: Syntax,
    pub parameters: usize,
    /// By which it is counted.
    pub digest: Option<Place>,
    /// Where hints stand in `sql`.
    pub hints: Vec<usize>,
    pub plan: Option<KeptPlan>,
    /// Parameters decide the types of result columns: planned at each execution.
    pub typed_by_params: bool,
}

/// A statement's plan, good while the catalog has this state, or its tables are the same, and the rest is.
#[derive(Debug)]
pub struct KeptPlan {
    pub state: (u64, u64),
    pub database: Option<String>,
    pub select_limit: u64,
    /// Of its literals and parameters.
    spoken: (Charset, Collation),
    pub plan: Rc<Plan>,
}

impl KeptPlan {
    pub fn new(plan: Plan, catalog: &Catalog, env: &Env) -> KeptPlan {
        let (database, select_limit) = (env.database.clone(), env.variables.select_limit);
        KeptPlan { state: catalog.state(), database, select_limit, spoken: spoken(env), plan: Rc::new(plan) }
    }
    pub fn is_of(&self, catalog: &Catalog, env: &Env) -> bool {
        (self.state == catalog.state() || self.plan.is_of(catalog))
            && self.database == env.database
            && self.select_limit == env.variables.select_limit
            && self.spoken == spoken(env)
    }
}

fn spoken(env: &Env) -> (Charset, Collation) {
    env.variables.spoken()
}
