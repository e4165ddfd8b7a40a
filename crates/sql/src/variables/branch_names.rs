//! Names of the branches of distributed transactions that sessions of this SQL node have and that are not prepared: each is of one session.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use crate::parse::xid::Xid;

/// Of one SQL node, shared by its threads.
#[derive(Default, Debug)]
pub struct Names(Mutex<BTreeSet<Xid>>);

impl Names {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeSet<Xid>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A name that is taken as long as this is there.
pub struct Taken {
    names: Arc<Names>,
    xid: Xid,
}

impl Taken {
    /// `None`: some session has a branch of this name.
    pub fn new(names: &Arc<Names>, xid: &Xid) -> Option<Taken> {
        let is_new = names.with(|names| names.insert(xid.clone()));
        is_new.then(|| Taken { names: names.clone(), xid: xid.clone() })
    }
    pub fn xid(&self) -> &Xid {
        &self.xid
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.names.with(|names| names.remove(&self.xid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once_and_free_again() {
        let names = Arc::new(Names::default());
        let xid = Xid { format: 1, gtrid: b"a".to_vec(), bqual: Vec::new() };
        let taken = Taken::new(&names, &xid).expect("a free name");
        assert!(Taken::new(&names, &xid).is_none());
        assert!(Taken::new(&names, &Xid { format: 2, ..xid.clone() }).is_some());
        drop(taken);
        assert!(Taken::new(&names, &xid).is_some());
    }
}
