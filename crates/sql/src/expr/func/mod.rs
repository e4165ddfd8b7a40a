//! The catalogue of functions, and those over numbers and about the session.

pub(crate) mod calendar;
pub mod clock;
pub mod encode;
mod kinds;
pub(crate) mod math;
pub(crate) mod net;
pub(crate) mod regexp;
mod session;
pub(crate) mod string;
pub mod text;
pub mod time;
pub mod user_lock;

use std::{borrow::Cow, cmp::Ordering};

use apus_types::{collate::Collation, time::pack_datetime};

use super::{Context, Expr, eval, json, moments};
use crate::{
    errors::{self, Result},
    value::datum::Datum,
};

macro_rules! functions {
    ($($name:ident, $least:literal ..= $most:literal, [$($text:literal),+];)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Func { $($name,)* }

        impl Func {
            /// Its first name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Func::$name => [$($text),+][0],)*
                }
            }
        }

        /// All names, with the numbers of arguments.
        pub const NAMES: &[(&str, usize, usize)] = &[$($(($text, $least, $most),)+)*];

        /// The function of a (lower case) name, when the number of arguments fits; refused with error 1582 otherwise.
        pub fn lookup(name: &str, arguments: usize) -> Result<Option<Func>> {
            match name {
                "json_object" if arguments % 2 == 1 => Err(errors::argument_count(name)),
                "json_set" | "json_insert" | "json_replace" | "json_array_append" | "json_array_insert"
                    if arguments % 2 == 0 =>
                {
                    Err(errors::argument_count(name))
                }
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
    // Reached by syntax only: COLLATE.
    Collate, 1..=1, [" collate"];
    // CONVERT(... USING ...), and a literal behind _utf8mb4 and its like.
    ConvertUsing, 1..=1, [" convert"];
    Introduced, 1..=1, [" introduced"];
    // What functions of bytes see of a text whose character set is not a form of Unicode.
    Encoded, 2..=2, [" encoded"];
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
    BitLength, 1..=1, ["bit_length"];
    Ord, 1..=1, ["ord"];
    Insert, 4..=4, ["insert"];
    SubstringIndex, 3..=3, ["substring_index"];
    MakeSet, 2..=1000, ["make_set"];
    ExportSet, 3..=5, ["export_set"];
    Format, 2..=3, ["format"];
    Conv, 3..=3, ["conv"];
    Bin, 1..=1, ["bin"];
    Oct, 1..=1, ["oct"];
    Soundex, 1..=1, ["soundex"];
    // Reached by syntax only: bytes as text.
    AsText, 1..=1, [" text"];
    // A key that is equal where all arguments are; NULL where one is.
    RowKey, 1..=1000, [" row_key"];
    // Of MATCH ... AGAINST: what it found, and the key of a row. The other one only holds its arguments.
    FullTextRank, 2..=2, [" rank"];
    FullTextRow, 3..=1000, [" row"];
    Md5, 1..=1, ["md5"];
    ToBase64, 1..=1, ["to_base64"];
    FromBase64, 1..=1, ["from_base64"];
    IsUuid, 1..=1, ["is_uuid"];
    UuidToBin, 1..=2, ["uuid_to_bin"];
    BinToUuid, 1..=2, ["bin_to_uuid"];
    RegexpLike, 2..=3, ["regexp_like"];
    RegexpReplace, 3..=6, ["regexp_replace"];
    RegexpSubstr, 2..=5, ["regexp_substr"];
    RegexpInstr, 2..=6, ["regexp_instr"];
    InetAton, 1..=1, ["inet_aton"];
    InetNtoa, 1..=1, ["inet_ntoa"];
    Inet6Aton, 1..=1, ["inet6_aton"];
    Inet6Ntoa, 1..=1, ["inet6_ntoa"];
    IsIpv4, 1..=1, ["is_ipv4"];
    IsIpv6, 1..=1, ["is_ipv6"];
    IsIpv4Compat, 1..=1, ["is_ipv4_compat"];
    IsIpv4Mapped, 1..=1, ["is_ipv4_mapped"];
    // Numbers
    Degrees, 1..=1, ["degrees"];
    Radians, 1..=1, ["radians"];
    Sin, 1..=1, ["sin"];
    Cos, 1..=1, ["cos"];
    Tan, 1..=1, ["tan"];
    Cot, 1..=1, ["cot"];
    Asin, 1..=1, ["asin"];
    Acos, 1..=1, ["acos"];
    Atan, 1..=2, ["atan", "atan2"];
    BitCount, 1..=1, ["bit_count"];
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
    Interval, 2..=1000, ["interval"];
    // Reached by syntax only: `x'41'`, `b'1'`; and what it is where a number is wanted.
    BinaryLiteral, 1..=1, [" binary_literal"];
    BinaryNumber, 1..=1, [" binary_number"];
    // JSON
    JsonArray, 0..=1000, ["json_array"];
    JsonObject, 0..=1000, ["json_object"];
    JsonQuote, 1..=1, ["json_quote"];
    JsonUnquote, 1..=1, ["json_unquote"];
    JsonExtract, 2..=1000, ["json_extract"];
    JsonType, 1..=1, ["json_type"];
    JsonValid, 1..=1, ["json_valid"];
    JsonLength, 1..=2, ["json_length"];
    JsonDepth, 1..=1, ["json_depth"];
    JsonKeys, 1..=2, ["json_keys"];
    JsonPretty, 1..=1, ["json_pretty"];
    JsonContains, 2..=3, ["json_contains"];
    JsonContainsPath, 3..=1000, ["json_contains_path"];
    JsonSearch, 3..=1000, ["json_search"];
    JsonOverlaps, 2..=2, ["json_overlaps"];
    JsonSet, 3..=1001, ["json_set"];
    JsonInsert, 3..=1001, ["json_insert"];
    JsonReplace, 3..=1001, ["json_replace"];
    JsonRemove, 2..=1000, ["json_remove"];
    JsonArrayAppend, 3..=1001, ["json_array_append"];
    JsonArrayInsert, 3..=1001, ["json_array_insert"];
    JsonMergePatch, 2..=1000, ["json_merge_patch"];
    JsonMergePreserve, 2..=1000, ["json_merge_preserve"];
    JsonMerge, 2..=1000, ["json_merge"];
    // With what it returns as a cast, and what it gives where there is no value and where one does not fit.
    JsonValue, 5..=5, ["json_value"];
    JsonSchemaValid, 2..=2, ["json_schema_valid"];
    JsonSchemaReport, 2..=2, ["json_schema_validation_report"];
    JsonStorageSize, 1..=1, ["json_storage_size"];
    JsonStorageFree, 1..=1, ["json_storage_free"];
    // Reached by syntax only: `value MEMBER OF (array)`.
    MemberOf, 2..=2, ["member of"];
    // Reached by syntax only: a truth value as JSON; a value, and what MySQL says it cannot do with it.
    JsonTruth, 1..=1, [" json_truth"];
    JsonRemark, 2..=2, [" json_remark"];
    // Time
    Now, 0..=1, ["now", "current_timestamp", "localtime", "localtimestamp"];
    Sysdate, 0..=1, ["sysdate"];
    CurDate, 0..=0, ["curdate", "current_date"];
    CurTime, 0..=1, ["curtime", "current_time"];
    UtcTimestamp, 0..=1, ["utc_timestamp"];
    UtcDate, 0..=0, ["utc_date"];
    UtcTime, 0..=1, ["utc_time"];
    UnixTimestamp, 0..=1, ["unix_timestamp"];
    FromUnixTime, 1..=2, ["from_unixtime"];
    Date, 1..=1, ["date"];
    Time, 1..=1, ["time"];
    Timestamp, 1..=2, ["timestamp"];
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
    WeekMode, 1..=2, ["week"];
    YearWeek, 1..=2, ["yearweek"];
    DayName, 1..=1, ["dayname"];
    MonthName, 1..=1, ["monthname"];
    FromDays, 1..=1, ["from_days"];
    ToSeconds, 1..=1, ["to_seconds"];
    MakeDate, 2..=2, ["makedate"];
    PeriodAdd, 2..=2, ["period_add"];
    PeriodDiff, 2..=2, ["period_diff"];
    ConvertTz, 3..=3, ["convert_tz"];
    GetFormat, 2..=2, ["get_format"];
    StrToDate, 2..=2, ["str_to_date"];
    MakeTime, 3..=3, ["maketime"];
    SecToTime, 1..=1, ["sec_to_time"];
    TimeToSec, 1..=1, ["time_to_sec"];
    TimeDiff, 2..=2, ["timediff"];
    AddTime, 2..=2, ["addtime"];
    SubTime, 2..=2, ["subtime"];
    TimeFormat, 2..=2, ["time_format"];
    // Reached by syntax only: the moment, the unit (a constant text).
    ExtractUnit, 2..=2, [" extract"];
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
    CurrentRole, 0..=0, ["current_role"];
    ConnectionId, 0..=0, ["connection_id"];
    LastInsertId, 0..=1, ["last_insert_id"];
    RowCount, 0..=0, ["row_count"];
    QueryAttribute, 1..=1, ["mysql_query_attribute_string"];
    FoundRows, 0..=0, ["found_rows"];
    Uuid, 0..=0, ["uuid"];
    UuidShort, 0..=0, ["uuid_short"];
    Sleep, 1..=1, ["sleep"];
    LoadFile, 1..=1, ["load_file"];
    GetLock, 2..=2, ["get_lock"];
    ReleaseLock, 1..=1, ["release_lock"];
    ReleaseAllLocks, 0..=0, ["release_all_locks"];
    IsFreeLock, 1..=1, ["is_free_lock"];
    IsUsedLock, 1..=1, ["is_used_lock"];
    // Reached by syntax only: `@name := value`.
    Assign, 2..=2, [" assign"];
}

impl Func {
    pub fn call<'a>(self, args: &'a [Expr], collation: Collation, cx: &Context<'a>) -> Result<Datum<'a>> {
        use Func::*;
        match self {
            Concat | ConcatWs | Length | CharLength | Substring | Left | Right | Upper | Lower | Trim | LTrim
            | RTrim | Replace | LPad | RPad | Instr | Locate | Hex | Unhex | Reverse | Repeat | Space | Ascii
            | Char | Sha1 | Sha2 | Strcmp | FindInSet | Elt | Field | Quote => text::call(self, args, collation, cx),
            Now | Sysdate | CurDate | CurTime | UtcTimestamp | UtcDate | UtcTime | UnixTimestamp | FromUnixTime
            | Date | Time | Timestamp | Year | Quarter | Month | Day | Hour | Minute | Second | Microsecond
            | DayOfWeek | Weekday | DayOfYear | Week | LastDay | DateDiff | DateFormat | ToDays | DateAdd | DateSub
            | TimestampDiff => time::call(self, args, cx),
            BitLength | Ord | Insert | SubstringIndex | MakeSet | ExportSet | Format | Conv | Bin | Oct | Soundex
            | AsText | RowKey | FullTextRank | FullTextRow => string::call(self, args, cx),
            Md5 | ToBase64 | FromBase64 | IsUuid | UuidToBin | BinToUuid => encode::call(self, args, cx),
            RegexpLike | RegexpReplace | RegexpSubstr | RegexpInstr => regexp::call(self, args, collation, cx),
            InetAton | InetNtoa | Inet6Aton | Inet6Ntoa | IsIpv4 | IsIpv6 | IsIpv4Compat | IsIpv4Mapped => {
                net::call(self, args, cx)
            }
            WeekMode | YearWeek | DayName | MonthName | ToSeconds => time::call(self, args, cx),
            FromDays | MakeDate | PeriodAdd | PeriodDiff | ConvertTz | GetFormat | StrToDate | MakeTime | SecToTime
            | TimeToSec | TimeDiff | AddTime | SubTime | TimeFormat | ExtractUnit => clock::call(self, args, cx),
            ConvertUsing => text::convert_using(args[0].eval(cx)?, collation.charset(), cx),
            Encoded => Ok(match args[0].eval(cx)? {
                same @ (Datum::Null | Datum::Bytes(_)) => same,
                text => Datum::Bytes(text::written_in(&text.as_text(), &args[1].eval(cx)?).into()),
            }),
            Collate | Introduced => Ok(match args[0].eval(cx)? {
                Datum::Null => Datum::Null,
                Datum::Text(t) | Datum::Bytes(t) => Datum::Text(t),
                other => Datum::Text(Cow::Owned(other.as_text().into_owned())),
            }),
            Interval => {
                let Some(n) = args[0].eval(cx)?.number() else { return Ok(Datum::Int(-1)) };
                for (i, e) in args[1..].iter().enumerate() {
                    if e.eval(cx)?.number().is_some_and(|bound| bound.compare(n).is_gt()) {
                        return Ok(Datum::Int(i as i64));
                    }
                }
                Ok(Datum::Int(args.len() as i64 - 1))
            }
            If => {
                let branch = if eval::truth(cx, &args[0].eval(cx)?) == Some(true) { &args[1] } else { &args[2] };
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
            Greatest | Least => extreme(args, self == Greatest, collation, cx),
            Database | Version | User | CurrentUser | CurrentRole | ConnectionId | LastInsertId | RowCount
            | QueryAttribute | FoundRows | Uuid | UuidShort | Sleep | Rand | LoadFile | Assign => {
                self.session(args, cx)
            }
            _ if self.is_of_user_locks() => self.user_lock(args, cx),
            _ if self.is_json() => json::call(self, args, cx),
            _ => math::call(self, args, cx),
        }
    }
}

/// GREATEST and LEAST: where a text is among numbers, all are compared as texts.
fn extreme<'a>(args: &'a [Expr], greatest: bool, collation: Collation, cx: &Context<'a>) -> Result<Datum<'a>> {
    let mut values = args.iter().map(|e| e.eval(cx)).collect::<Result<Vec<_>>>()?;
    if values.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    if values.iter().any(|v| matches!(v, Datum::Json(_))) {
        cx.env.note_once(errors::not_yet_in_mysql(json::EXTREME));
        values.iter_mut().for_each(|v| *v = Datum::text(v.as_string()));
    }
    if values.iter().any(Datum::is_text) && values.iter().any(Datum::is_number) {
        let binary = values.iter().any(|v| matches!(v, Datum::Bytes(_)));
        for value in values.iter_mut().filter(|v| !v.is_text()) {
            let text = Cow::Owned(value.as_text().into_owned());
            *value = if binary { Datum::Bytes(text) } else { Datum::Text(text) };
        }
    }
    if values.iter().any(|v| matches!(v, Datum::Date(_) | Datum::DateTime(..))) {
        for value in values.iter_mut().filter(|v| matches!(v, Datum::Time(..))) {
            *value = moments::moment(cx, value, moments::Wanted::Parts)
                .map_or(Datum::Null, |c| Datum::DateTime(pack_datetime(c), 6));
        }
    }
    let mut best = values.swap_remove(0);
    for value in values {
        let Some(order) = value.compare(&best, collation) else { return Ok(Datum::Null) };
        if if greatest { order.is_gt() } else { order.is_lt() } {
            best = value;
        }
    }
    Ok(best)
}

fn arg(args: &[Expr], i: usize) -> Expr {
    args.get(i).cloned().unwrap_or(Expr::Const(Datum::Null))
}
