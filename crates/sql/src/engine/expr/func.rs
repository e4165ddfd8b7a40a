//! The catalogue of functions, and those over numbers and about the session.

use std::{borrow::Cow, cmp::Ordering};

use apus_types::collate::Collation;

use super::{Context, Datum, Expr, Kind, datum::Number, decimal, func_text, func_time};
use crate::{
    engine::errors::{self, Result},
    wire::constants::SERVER_VERSION,
};

macro_rules! functions {
    ($($name:ident, $least:literal ..= $most:literal, [$($text:literal),+];)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Func { $($name,)* }

        /// The function of a (lower case) name, when the number of arguments fits; refused with error 1582 otherwise.
        pub fn lookup(name: &str, arguments: usize) -> Result<Option<Func>> {
            match name {
                $($($text)|+ => {
                    if ($least..=$most).contains(&arguments) { Ok(Some(Func::$name)) } else { Err(errors::argument_count(name)) }
                })*
                _ => Ok(None),
            }
        }
    };
}

functions! {
    // Text
    Concat, 1..=1000, ["concat"];
    ConcatWs, 2..=1000, ["concat_ws"];
    Length, 1..=1, ["length", "octet_length"];
    CharLength, 1..=1, ["char_length", "character_length"];
    Substring, 2..=3, ["substring", "substr", "mid"];
    Left, 2..=2, ["left"];
    Right, 2..=2, ["right"];
    Upper, 1..=1, ["upper", "ucase"];
    Lower, 1..=1, ["lower", "lcase"];
    Trim, 1..=2, ["trim"];
    LTrim, 1..=2, ["ltrim"];
    RTrim, 1..=2, ["rtrim"];
    Replace, 3..=3, ["replace"];
    LPad, 3..=3, ["lpad"];
    RPad, 3..=3, ["rpad"];
    Instr, 2..=2, ["instr"];
    Locate, 2..=3, ["locate", "position"];
    Hex, 1..=1, ["hex"];
    Unhex, 1..=1, ["unhex"];
    Reverse, 1..=1, ["reverse"];
    Repeat, 2..=2, ["repeat"];
    Space, 1..=1, ["space"];
    Ascii, 1..=1, ["ascii"];
    Char, 1..=1000, ["char"];
    Sha1, 1..=1, ["sha1", "sha"];
    Sha2, 2..=2, ["sha2"];
    Strcmp, 2..=2, ["strcmp"];
    FindInSet, 2..=2, ["find_in_set"];
    Elt, 2..=1000, ["elt"];
    Field, 2..=1000, ["field"];
    Quote, 1..=1, ["quote"];
    // Numbers
    Abs, 1..=1, ["abs"];
    Mod, 2..=2, ["mod"];
    Round, 1..=2, ["round"];
    Truncate, 2..=2, ["truncate"];
    Floor, 1..=1, ["floor"];
    Ceil, 1..=1, ["ceil", "ceiling"];
    Greatest, 2..=1000, ["greatest"];
    Least, 2..=1000, ["least"];
    Rand, 0..=1, ["rand"];
    Pow, 2..=2, ["pow", "power"];
    Sqrt, 1..=1, ["sqrt"];
    Sign, 1..=1, ["sign"];
    Exp, 1..=1, ["exp"];
    Ln, 1..=1, ["ln"];
    Log, 1..=2, ["log"];
    Log2, 1..=1, ["log2"];
    Log10, 1..=1, ["log10"];
    Pi, 0..=0, ["pi"];
    Crc32, 1..=1, ["crc32"];
    // Control
    If, 3..=3, ["if"];
    IfNull, 2..=2, ["ifnull"];
    NullIf, 2..=2, ["nullif"];
    Coalesce, 1..=1000, ["coalesce"];
    IsNull, 1..=1, ["isnull"];
    // Reached by syntax only: `x'41'`, `b'1'`; and what it is where a number is wanted.
    BinaryLiteral, 1..=1, [" binary_literal"];
    BinaryNumber, 1..=1, [" binary_number"];
    // Time
    Now, 0..=1, ["now", "current_timestamp", "localtime", "localtimestamp", "sysdate"];
    CurDate, 0..=0, ["curdate", "current_date"];
    CurTime, 0..=1, ["curtime", "current_time"];
    UtcTimestamp, 0..=1, ["utc_timestamp"];
    UtcDate, 0..=0, ["utc_date"];
    UtcTime, 0..=1, ["utc_time"];
    UnixTimestamp, 0..=1, ["unix_timestamp"];
    FromUnixTime, 1..=2, ["from_unixtime"];
    Date, 1..=1, ["date"];
    Time, 1..=1, ["time"];
    Timestamp, 1..=1, ["timestamp"];
    Year, 1..=1, ["year"];
    Quarter, 1..=1, ["quarter"];
    Month, 1..=1, ["month"];
    Day, 1..=1, ["day", "dayofmonth"];
    Hour, 1..=1, ["hour"];
    Minute, 1..=1, ["minute"];
    Second, 1..=1, ["second"];
    Microsecond, 1..=1, ["microsecond"];
    DayOfWeek, 1..=1, ["dayofweek"];
    Weekday, 1..=1, ["weekday"];
    DayOfYear, 1..=1, ["dayofyear"];
    Week, 1..=1, ["weekofyear"];
    LastDay, 1..=1, ["last_day"];
    DateDiff, 2..=2, ["datediff"];
    DateFormat, 2..=2, ["date_format"];
    ToDays, 1..=1, ["to_days"];
    // Reached by syntax only. Arguments: moment, count, unit (a constant text).
    DateAdd, 3..=3, [" date_add"];
    DateSub, 3..=3, [" date_sub"];
    TimestampDiff, 3..=3, [" timestampdiff"];
    // Session
    Database, 0..=0, ["database", "schema"];
    Version, 0..=0, ["version"];
    User, 0..=0, ["user", "session_user", "system_user"];
    CurrentUser, 0..=0, ["current_user"];
    ConnectionId, 0..=0, ["connection_id"];
    LastInsertId, 0..=1, ["last_insert_id"];
    RowCount, 0..=0, ["row_count"];
    FoundRows, 0..=0, ["found_rows"];
    Uuid, 0..=0, ["uuid"];
    Sleep, 1..=1, ["sleep"];
}

impl Func {
    /// Not the same for every row of one execution.
    pub fn varies(self) -> bool {
        matches!(self, Func::Rand | Func::Uuid | Func::Sleep | Func::LastInsertId)
    }

    /// Takes its arguments as numbers.
    pub fn is_numeric(self) -> bool {
        use Func::*;
        matches!(
            self,
            Abs | Mod
                | Round
                | Truncate
                | Floor
                | Ceil
                | Pow
                | Sqrt
                | Sign
                | Exp
                | Ln
                | Log
                | Log2
                | Log10
                | Rand
                | Space
                | Char
                | Sleep
        )
    }

    pub fn kind(self, args: &[Expr], params: &[Kind]) -> Kind {
        use Func::*;
        let kind = |i: usize| args.get(i).map_or(Kind::Null, |e| e.kind(params));
        let all = |list: &[Expr]| list.iter().fold(Kind::Null, |k, e| k.unify(e.kind(params)));
        let decimals = |i: usize| match args.get(i) {
            Some(Expr::Const(Datum::Int(n))) => (*n).clamp(0, 6) as u8,
            _ => 0,
        };
        match self {
            Unhex | Char | BinaryLiteral => Kind::Bytes,
            Concat | ConcatWs | Substring | Left | Right | Trim | LTrim | RTrim | Replace | LPad | RPad | Reverse
            | Repeat | Upper | Lower => {
                if args.iter().any(|e| e.kind(params) == Kind::Bytes) {
                    Kind::Bytes
                } else {
                    Kind::Text
                }
            }
            Hex | Space | Sha1 | Sha2 | Elt | Quote | DateFormat | Database | Version | User | CurrentUser | Uuid => {
                Kind::Text
            }
            Length | CharLength | Instr | Locate | Ascii | Strcmp | FindInSet | Field | Sign | IsNull | Year
            | Quarter | Month | Day | Hour | Minute | Second | Microsecond | DayOfWeek | Weekday | DayOfYear | Week
            | DateDiff | ToDays | TimestampDiff | RowCount | Sleep => Kind::Int,
            Crc32 | BinaryNumber | ConnectionId | LastInsertId | FoundRows => Kind::UInt,
            Rand | Pow | Sqrt | Exp | Ln | Log | Log2 | Log10 | Pi => Kind::Double,
            Abs => number_kind(kind(0)),
            Floor | Ceil => match number_kind(kind(0)) {
                Kind::Decimal(_) => Kind::Decimal(0),
                k => k,
            },
            Round | Truncate => match (number_kind(kind(0)), args.get(1)) {
                (Kind::Decimal(_), None) => Kind::Decimal(0),
                (Kind::Decimal(_), Some(Expr::Const(Datum::Int(n)))) => {
                    Kind::Decimal((*n).clamp(0, i64::from(decimal::SCALE_MAX)) as u8)
                }
                (k, _) => k,
            },
            Mod => Expr::Arith(super::ArithOp::Mod, Box::new(arg(args, 0)), Box::new(arg(args, 1))).kind(params),
            Greatest | Least | Coalesce => all(args),
            If => kind(1).unify(kind(2)),
            IfNull => kind(0).unify(kind(1)),
            NullIf => kind(0),
            Now | UtcTimestamp => Kind::DateTime(decimals(0)),
            CurTime | UtcTime => Kind::Time(decimals(0)),
            CurDate | UtcDate | Date | LastDay => Kind::Date,
            Time => match kind(0) {
                Kind::Time(n) | Kind::DateTime(n) => Kind::Time(n),
                Kind::Date => Kind::Time(0),
                _ => Kind::Time(6),
            },
            Timestamp => match kind(0) {
                Kind::DateTime(n) => Kind::DateTime(n),
                Kind::Date => Kind::DateTime(0),
                _ => Kind::DateTime(6),
            },
            UnixTimestamp => match args.first().map(|e| e.kind(params)) {
                None | Some(Kind::Date | Kind::DateTime(0) | Kind::Int) => Kind::Int,
                Some(Kind::DateTime(n)) => Kind::Decimal(n),
                _ => Kind::Decimal(6),
            },
            FromUnixTime if args.len() == 2 => Kind::Text,
            FromUnixTime => match kind(0) {
                Kind::Int | Kind::UInt => Kind::DateTime(0),
                _ => Kind::DateTime(6),
            },
            DateAdd | DateSub => func_time::date_add_kind(kind(0), &func_time::unit_of(args)),
        }
    }

    pub fn call<'a>(self, args: &'a [Expr], collation: Collation, cx: &Context<'a>) -> Result<Datum<'a>> {
        use Func::*;
        match self {
            Concat | ConcatWs | Length | CharLength | Substring | Left | Right | Upper | Lower | Trim | LTrim
            | RTrim | Replace | LPad | RPad | Instr | Locate | Hex | Unhex | Reverse | Repeat | Space | Ascii
            | Char | Sha1 | Sha2 | Strcmp | FindInSet | Elt | Field | Quote => {
                func_text::call(self, args, collation, cx)
            }
            Now | CurDate | CurTime | UtcTimestamp | UtcDate | UtcTime | UnixTimestamp | FromUnixTime | Date | Time
            | Timestamp | Year | Quarter | Month | Day | Hour | Minute | Second | Microsecond | DayOfWeek | Weekday
            | DayOfYear | Week | LastDay | DateDiff | DateFormat | ToDays | DateAdd | DateSub | TimestampDiff => {
                func_time::call(self, args, cx)
            }
            If => {
                let branch = if args[0].eval(cx)?.truth() == Some(true) { &args[1] } else { &args[2] };
                branch.eval(cx)
            }
            IfNull | Coalesce => {
                for e in args {
                    let value = e.eval(cx)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Null)
            }
            NullIf => {
                let value = args[0].eval(cx)?;
                let same = value.compare(&args[1].eval(cx)?, collation).is_some_and(Ordering::is_eq);
                Ok(if same { Datum::Null } else { value })
            }
            IsNull => Ok(Datum::from_bool(args[0].eval(cx)?.is_null())),
            BinaryLiteral => args[0].eval(cx),
            BinaryNumber => Ok(match args[0].eval(cx)? {
                Datum::Null => Datum::Null,
                other => Datum::UInt(other.as_text().iter().fold(0, |n, &byte| n << 8 | u64::from(byte))),
            }),
            Greatest | Least => {
                let mut best = args[0].eval(cx)?;
                for e in &args[1..] {
                    let value = e.eval(cx)?;
                    let Some(order) = value.compare(&best, collation) else { return Ok(Datum::Null) };
                    if (self == Greatest && order.is_gt()) || (self == Least && order.is_lt()) {
                        best = value;
                    }
                }
                Ok(best)
            }
            Database | Version | User | CurrentUser | ConnectionId | LastInsertId | RowCount | FoundRows | Uuid
            | Sleep | Rand => self.session(args, cx),
            _ => self.numeric(args, cx),
        }
    }

    fn session<'a>(self, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
        let env = cx.env;
        Ok(match self {
            Func::Database => env.database.as_ref().map_or(Datum::Null, |d| Datum::Text(Cow::Borrowed(d.as_bytes()))),
            Func::Version => Datum::Text(Cow::Borrowed(SERVER_VERSION.as_bytes())),
            Func::User => Datum::text(format!("{}@{}", env.user, env.host)),
            Func::CurrentUser => Datum::text(format!("{}@%", env.user)),
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
            Func::RowCount => Datum::Int(env.row_count),
            Func::FoundRows => Datum::UInt(env.found_rows),
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

    fn numeric<'a>(self, args: &'a [Expr], cx: &Context<'a>) -> Result<Datum<'a>> {
        use Func::*;
        if self == Pi {
            return Ok(Datum::Double(std::f64::consts::PI));
        }
        let first = args[0].eval(cx)?;
        if self == Crc32 {
            return Ok(if first.is_null() { Datum::Null } else { Datum::UInt(u64::from(crc32(&first.as_text()))) });
        }
        let Some(n) = first.number() else { return Ok(Datum::Null) };
        let second = match args.get(1) {
            Some(e) => match e.eval(cx)?.number() {
                Some(m) => Some(m),
                None => return Ok(Datum::Null),
            },
            None => None,
        };
        let x = n.to_f64();
        let double = |x: f64| Ok(if x.is_finite() { Datum::Double(x) } else { Datum::Null });
        match self {
            Abs => match n {
                Number::Int(i) => {
                    i.checked_abs().map(Datum::Int).ok_or_else(|| errors::overflow("BIGINT", &format!("abs({i})")))
                }
                Number::Decimal(unscaled, scale) => {
                    Ok(Datum::decimal(unscaled.abs(), scale, first.shown_scale().min(scale)))
                }
                Number::Double(x) => Ok(Datum::Double(x.abs())),
                Number::UInt(u) => Ok(Datum::UInt(u)),
            },
            Mod => super::eval::arith(super::ArithOp::Mod, &n.datum(), &second.map_or(Datum::Null, Number::datum)),
            Round | Truncate => {
                round(n, second.map_or(0, |m| m.to_i128().clamp(-60, 60) as i32), self == Truncate, args.len() > 1)
            }
            Floor | Ceil => Ok(match n {
                Number::Decimal(unscaled, scale) => {
                    let unit = decimal::power_of_ten(scale).unwrap_or(1);
                    let whole = if self == Floor { unscaled.div_euclid(unit) } else { -(-unscaled).div_euclid(unit) };
                    Datum::Decimal { unscaled: whole, scale: 0 }
                }
                Number::Double(x) => Datum::Double(if self == Floor { x.floor() } else { x.ceil() }),
                n => n.datum(),
            }),
            Pow => {
                let result = x.powf(second.map_or(0.0, Number::to_f64));
                if result.is_finite() { Ok(Datum::Double(result)) } else { Err(errors::overflow("DOUBLE", "pow")) }
            }
            Exp => {
                if x.exp().is_finite() {
                    Ok(Datum::Double(x.exp()))
                } else {
                    Err(errors::overflow("DOUBLE", "exp"))
                }
            }
            Sqrt if x >= 0.0 => double(x.sqrt()),
            Ln if x > 0.0 => double(x.ln()),
            Log2 if x > 0.0 => double(x.log2()),
            Log10 if x > 0.0 => double(x.log10()),
            Log => match second.map(Number::to_f64) {
                None if x > 0.0 => double(x.ln()),
                Some(y) if x > 0.0 && x != 1.0 && y > 0.0 => double(y.ln() / x.ln()),
                _ => Ok(Datum::Null),
            },
            Sign => Ok(Datum::Int(if n.is_zero() {
                0
            } else if x < 0.0 {
                -1
            } else {
                1
            })),
            _ => Ok(Datum::Null),
        }
    }
}

fn arg(args: &[Expr], i: usize) -> Expr {
    args.get(i).cloned().unwrap_or(Expr::Const(Datum::Null))
}

fn number_kind(kind: Kind) -> Kind {
    match kind {
        Kind::Text | Kind::Bytes => Kind::Double,
        Kind::Null | Kind::Date | Kind::DateTime(0) | Kind::Time(0) => Kind::Int,
        Kind::DateTime(n) | Kind::Time(n) => Kind::Decimal(n),
        k => k,
    }
}

fn round(n: Number, digits: i32, truncate: bool, has_digits: bool) -> Result<Datum<'static>> {
    Ok(match n {
        Number::Double(x) => {
            let factor = 10f64.powi(digits);
            let scaled = x * factor;
            let rounded = if truncate { scaled.trunc() } else { scaled.round_ties_even() };
            let result = if factor.is_finite() && factor != 0.0 { rounded / factor } else { x };
            Datum::Double(if result.is_finite() { result } else { x })
        }
        Number::Decimal(unscaled, scale) => {
            let keep = digits.clamp(0, i32::from(decimal::SCALE_MAX)) as u8;
            let kept = if truncate {
                decimal::truncate(unscaled, scale, keep)
            } else {
                decimal::rescale(unscaled, scale, keep)
            };
            if digits >= 0 {
                let Some(kept) = kept else { return Err(errors::overflow("DECIMAL", "round")) };
                Datum::Decimal { unscaled: kept, scale: if has_digits { keep } else { 0 } }
            } else {
                let whole = decimal::truncate(unscaled, scale, 0).unwrap_or(0);
                Datum::Decimal { unscaled: round_tens(whole, digits, truncate), scale: 0 }
            }
        }
        n if digits >= 0 => n.datum(),
        Number::UInt(u) => Datum::UInt(u64::try_from(round_tens(i128::from(u), digits, truncate)).unwrap_or(u64::MAX)),
        n => Datum::Int(i64::try_from(round_tens(n.to_i128(), digits, truncate)).unwrap_or(i64::MAX)),
    })
}

fn round_tens(n: i128, digits: i32, truncate: bool) -> i128 {
    let Some(unit) = 10i128.checked_pow(digits.unsigned_abs()) else { return 0 };
    let rest = n % unit;
    let up = !truncate && rest.abs() * 2 >= unit;
    n - rest + if up { unit * n.signum() } else { 0 }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}
