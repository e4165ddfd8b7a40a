//! What XA statements are refused with, in MySQL's words.

use crate::wire::SqlError;

pub fn unknown() -> SqlError {
    SqlError::new(1397, b"XAE04", "XAER_NOTA: Unknown XID")
}
pub fn invalid() -> SqlError {
    SqlError::new(1398, b"XAE05", "XAER_INVAL: Invalid arguments (or unsupported command)")
}
pub fn wrong_state(state: &str) -> SqlError {
    let text = format!("XAER_RMFAIL: The command cannot be executed when global transaction is in the  {state} state");
    SqlError::new(1399, b"XAE07", text)
}
pub fn outside() -> SqlError {
    SqlError::new(1400, b"XAE09", "XAER_OUTSIDE: Some work is done outside global transaction")
}
/// XA RECOVER without its privilege.
pub fn not_shown() -> SqlError {
    let text = "XAER_RMERR: Fatal error occurred in the transaction branch - check your data for consistency";
    SqlError::new(1401, b"XAE03", text)
}
pub fn duplicate() -> SqlError {
    SqlError::new(1440, b"XAE08", "XAER_DUPID: The XID already exists")
}
/// Of a branch whose transaction the cluster has ended.
pub fn lost(to_deadlock: bool) -> SqlError {
    if to_deadlock {
        let text = "XA_RBDEADLOCK: Transaction branch was rolled back: deadlock was detected";
        return SqlError::new(1614, b"XA102", text);
    }
    SqlError::new(1402, b"XA100", "XA_RBROLLBACK: Transaction branch was rolled back")
}
/// XA PREPARE has rolled the branch back.
pub fn not_prepared(why: &SqlError) -> SqlError {
    let text =
        format!("XA_RBROLLBACK: Transaction branch was rolled back, for it could not be prepared: {}", why.message);
    SqlError::new(1402, b"XA100", text)
}
pub fn with_temporary_table() -> SqlError {
    let text = "XA: Temporary tables cannot be accessed inside XA transactions when xa_detach_on_prepare=ON";
    SqlError::new(4091, b"HY000", text)
}
