//! Functions that answer for the session: who it is, what it did last, its locks.

use std::borrow::Cow;

use super::{
    Func,
    user_lock::{Call, lock_name},
};
use crate::{
    errors::Result,
    expr::{CastType, Context, Expr, eval::conversion},
    files,
    value::datum::{Datum, Number},
    wire::constants::SERVER_VERSION,
};

impl Func {
    pub(super) fn user_lock<'a>(self, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
        let name = |args: &'a [Expr]| lock_name(&args[0].eval(cx)?);
        let call = match self {
            Func::GetLock => {
                let name = name(args)?;
                let seconds = args[1].eval(cx)?;
                conversion::note_cast(cx, &seconds, CastType::Signed);
                // MySQL takes NULL for 0.
                let seconds = seconds.number().map_or(0, |n| n.to_i128());
                Call::Get { name, seconds: i64::try_from(seconds).unwrap_or(i64::MAX) }
            }
            Func::ReleaseLock => Call::Release(name(args)?),
            Func::IsFreeLock => Call::IsFree(name(args)?),
            Func::IsUsedLock => Call::IsUsed(name(args)?),
            _ => Call::ReleaseAll,
        };
        cx.env.lock_calls.borrow_mut().call(call)
    }

    pub(super) fn session<'a>(self, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
        let env = cx.env;
        Ok(match self {
            Func::Database => env.database.as_ref().map_or(Datum::Null, |d| Datum::Text(Cow::Borrowed(d.as_bytes()))),
            Func::Version => Datum::Text(Cow::Borrowed(SERVER_VERSION.as_bytes())),
            Func::User => Datum::text(format!("{}@{}", env.user, env.host)),
            Func::CurrentUser => match &env.me {
                Some(me) => Datum::text(me.account.name.to_string()),
                None => Datum::text(format!("{}@%", env.user)),
            },
            Func::CurrentRole => {
                let roles: Vec<String> =
                    env.me.iter().flat_map(|me| me.roles()).map(|role| role.in_backticks()).collect();
                Datum::text(if roles.is_empty() { "NONE".to_owned() } else { roles.join(",") })
            }
            Func::ConnectionId => Datum::UInt(u64::from(env.connection_id)),
            Func::LastInsertId => match args.first() {
                Some(e) => {
                    let n = e.eval(cx)?.number().map_or(0, |n| n.to_i128() as u64);
                    env.last_insert_id.set(n);
                    env.last_insert_id_given.set(true);
                    Datum::UInt(n)
                }
                None => Datum::UInt(env.last_insert_id.get()),
            },
            Func::Assign => {
                let value = args[1].eval(cx)?.into_owned();
                env.assign(&args[0].eval(cx)?.as_string(), value.clone())?;
                value
            }
            Func::RowCount => Datum::Int(env.row_count),
            Func::QueryAttribute => match args[0].eval(cx)? {
                Datum::Null => Datum::Null,
                name => {
                    let name = name.as_string().to_ascii_lowercase();
                    let found = env.attributes.iter().find(|(known, _)| *known == name);
                    found.and_then(|(_, value)| value.clone()).map_or(Datum::Null, Datum::text)
                }
            },
            Func::FoundRows => Datum::Int(env.found_rows as i64),
            Func::Uuid => {
                let (a, b) = (env.random_u64(), env.random_u64());
                Datum::text(format!(
                    "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
                    a >> 32,
                    a >> 16 & 0xffff,
                    a & 0xfff,
                    b >> 48 & 0x3fff | 0x8000,
                    b & 0xffff_ffff_ffff
                ))
            }
            Func::UuidShort => Datum::UInt(uuid_short(env)),
            Func::LoadFile => files::load_file(&args[0].eval(cx)?, env)?,
            Func::Sleep => {
                let seconds = args[0].eval(cx)?.number().map_or(0.0, Number::to_f64);
                env.sleep_seconds.set(env.sleep_seconds.get() + seconds.clamp(0.0, 86_400.0));
                Datum::Int(0)
            }
            _ => {
                let bits = match args.first() {
                    Some(seed) => {
                        let seed = seed.eval(cx)?.number().map_or(0, |n| n.to_i128() as u64);
                        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 7
                    }
                    None => env.random_u64(),
                };
                Datum::Double((bits >> 11) as f64 / (1u64 << 53) as f64)
            }
        })
    }
}

/// A number that no other call of this process gives: some bits of chance, the second it began in, a counter.
fn uuid_short(env: &crate::expr::Env) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = (env.random_u64() & 0x7f) << 56 | ((env.now() / 1_000_000) as u64 & 0xffff_ffff) << 24;
    let _ = NEXT.compare_exchange(0, first, Relaxed, Relaxed);
    NEXT.fetch_add(1, Relaxed)
}
