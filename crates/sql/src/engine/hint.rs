//! Hints of a statement, `/*+ ... */` behind its first word: only MAX_EXECUTION_TIME means something here.

/// The n of `SELECT /*+ MAX_EXECUTION_TIME(n) */`, in milliseconds; 0: no limit. Where a hint is not well formed there is none, as in MySQL.
pub fn max_execution_ms(sql: &[u8]) -> Option<u64> {
    let rest = sql.trim_ascii_start();
    let (word, rest) = rest.split_at_checked(6)?;
    let rest = rest.trim_ascii_start().strip_prefix(b"/*+").filter(|_| word.eq_ignore_ascii_case(b"select"))?;
    let end = rest.windows(2).position(|pair| pair == b"*/")?;
    let text = rest[..end].to_ascii_lowercase();
    let name = b"max_execution_time";
    let at = text.windows(name.len()).position(|found| found == name)?;
    let number = text[at + name.len()..].trim_ascii_start().strip_prefix(b"(")?;
    let close = number.iter().position(|&byte| byte == b')')?;
    std::str::from_utf8(number[..close].trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::max_execution_ms;

    #[test]
    fn the_hint_is_found_where_it_may_stand() {
        for (sql, wanted) in [
            ("SELECT /*+ MAX_EXECUTION_TIME(100) */ 1", Some(100)),
            (" select/*+ NO_ICP(t) max_execution_time ( 7 ) */ 1", Some(7)),
            ("SELECT /*+ MAX_EXECUTION_TIME(0) */ 1", Some(0)),
            ("SELECT /* MAX_EXECUTION_TIME(100) */ 1", None),
            ("SELECT '/*+ MAX_EXECUTION_TIME(100) */'", None),
            ("SELECT /*+ MAX_EXECUTION_TIME(x) */ 1", None),
            ("SELECT /*+ MAX_EXECUTION_TIME(1", None),
            ("UPDATE /*+ MAX_EXECUTION_TIME(100) */ t SET a = 1", None),
            ("s", None),
        ] {
            assert_eq!(max_execution_ms(sql.as_bytes()), wanted, "{sql}");
        }
    }
}
