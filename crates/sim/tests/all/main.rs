//! All tests of the simulator but the one of planted mistakes, in one program: it is linked once, and as many tests run at once as there are cores.

mod anew;
mod bank;
mod branches;
mod catalogue;
mod churn;
mod common;
mod data_files;
mod departs;
mod disk;
mod dropped;
mod encryption;
mod eras;
mod exactly_once;
mod failed_sync;
mod failures;
mod fenced;
mod guests;
mod hung;
mod just_filled;
mod lag;
mod published;
mod scrub;
mod stuck;
mod toy;
mod workers;
