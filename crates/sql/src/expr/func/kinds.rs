//! What is known of a function before it is called: the kind of its result, what it takes.

use apus_types::ColumnType;

use super::{Func, arg, clock, time};
use crate::{
    expr::{Expr, Kind},
    value::datum::Datum,
};

impl Func {
    /// Not the same for every row of one execution.
    pub fn varies(self) -> bool {
        self.is_of_user_locks()
            || matches!(
                self,
                Func::Rand
                    | Func::Sysdate
                    | Func::Uuid
                    | Func::UuidShort
                    | Func::Sleep
                    | Func::LoadFile
                    | Func::LastInsertId
                    | Func::Assign
            )
    }

    pub(super) fn is_of_user_locks(self) -> bool {
        use Func::*;
        matches!(self, GetLock | ReleaseLock | ReleaseAllLocks | IsFreeLock | IsUsedLock)
    }

    /// A function of JSON that makes a text.
    pub fn is_json_text(self) -> bool {
        use Func::*;
        matches!(self, JsonQuote | JsonUnquote | JsonType | JsonPretty | JsonValue)
    }

    /// A function of JSON.
    pub fn is_json(self) -> bool {
        self == Func::MemberOf || self.name().trim_start().starts_with("json_")
    }

    /// Whether the argument with this number (from 0) becomes a part of a document.
    pub fn takes_value(self, i: usize) -> bool {
        match self {
            Func::JsonArray => true,
            Func::JsonObject => i % 2 == 1,
            Func::JsonSet | Func::JsonInsert | Func::JsonReplace | Func::JsonArrayAppend | Func::JsonArrayInsert => {
                i > 0 && i.is_multiple_of(2)
            }
            Func::MemberOf => i == 0,
            _ => false,
        }
    }

    /// Gives a truth value.
    pub fn is_truth(self) -> bool {
        use Func::*;
        matches!(
            self,
            IsNull
                | RegexpLike
                | JsonValid
                | JsonTruth
                | JsonContains
                | JsonContainsPath
                | JsonOverlaps
                | MemberOf
                | JsonSchemaValid
        )
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
                | Degrees
                | Radians
                | Sin
                | Cos
                | Tan
                | Cot
                | Asin
                | Acos
                | Atan
                | Format
                | InetNtoa
                | FromDays
                | SecToTime
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
            FullTextRank => Kind::Double,
            LoadFile | Encoded | Unhex | Char | BinaryLiteral | RowKey | FullTextRow | FromBase64 | UuidToBin
            | Inet6Aton => Kind::Bytes,
            Collate | ConvertUsing | Introduced => Kind::Text,
            Concat | ConcatWs | Substring | Left | Right | Trim | LTrim | RTrim | Replace | LPad | RPad | Reverse
            | Repeat | Upper | Lower | Insert | SubstringIndex => {
                let is_binary = |e: &Expr| matches!(e.kind(params), Kind::Bytes | Kind::Bit(_));
                if args.iter().any(is_binary) { Kind::Bytes } else { Kind::Text }
            }
            MakeSet | ExportSet | Format | Conv | Bin | Oct | Soundex | AsText | Md5 | ToBase64 | BinToUuid
            | RegexpReplace | RegexpSubstr | InetNtoa | Inet6Ntoa | DayName | MonthName | GetFormat | TimeFormat => {
                Kind::Text
            }
            BitLength | Ord | BitCount | IsUuid | RegexpLike | RegexpInstr | IsIpv4 | IsIpv6 | IsIpv4Compat
            | IsIpv4Mapped | Interval | WeekMode | YearWeek | ToSeconds | PeriodAdd | PeriodDiff | TimeToSec
            | ExtractUnit => Kind::Int,
            InetAton | UuidShort => Kind::UInt,
            Assign => match kind(1) {
                Kind::Bit(_) => Kind::UInt,
                Kind::Null => Kind::Bytes,
                moment if moment.is_temporal() => Kind::Text,
                other => other,
            },
            Degrees | Radians | Sin | Cos | Tan | Cot | Asin | Acos | Atan => Kind::Double,
            FromDays | MakeDate => Kind::Date,
            ConvertTz => Kind::DateTime(time::digits_of(&arg(args, 0), params)),
            MakeTime => Kind::Time(time::digits_of(&arg(args, 2), params)),
            SecToTime => Kind::Time(time::digits_of(&arg(args, 0), params)),
            TimeDiff => Kind::Time(time::digits_of(&arg(args, 0), params).max(time::digits_of(&arg(args, 1), params))),
            AddTime | SubTime => match kind(0) {
                Kind::DateTime(n) => Kind::DateTime(n.max(time::digits_of(&arg(args, 1), params))),
                Kind::Date => Kind::DateTime(time::digits_of(&arg(args, 1), params)),
                Kind::Time(n) => Kind::Time(n.max(time::digits_of(&arg(args, 1), params))),
                _ => Kind::Text,
            },
            StrToDate => clock::str_to_date::parsed_kind(args.get(1)),
            JsonArray | JsonObject | JsonExtract | JsonKeys | JsonTruth | JsonSearch | JsonSet | JsonInsert
            | JsonReplace | JsonRemove | JsonArrayAppend | JsonArrayInsert | JsonMergePatch | JsonMergePreserve
            | JsonMerge | JsonSchemaReport => Kind::Json,
            JsonQuote | JsonUnquote | JsonType | JsonPretty => Kind::Text,
            JsonValid | JsonLength | JsonDepth | JsonContains | JsonContainsPath | JsonOverlaps | MemberOf
            | JsonStorageSize | JsonStorageFree | JsonSchemaValid => Kind::Int,
            JsonRemark => kind(0),
            JsonValue => kind(2),
            Hex | Space | Sha1 | Sha2 | Elt | Quote | DateFormat | Database | Version | User | CurrentUser
            | CurrentRole | QueryAttribute | Uuid => Kind::Text,
            Length | CharLength | Instr | Locate | Ascii | Strcmp | FindInSet | Field | Sign | IsNull | Quarter
            | Month | Day | Hour | Minute | Second | Microsecond | DayOfWeek | Weekday | DayOfYear | Week
            | DateDiff | ToDays | TimestampDiff | RowCount | Sleep | GetLock | ReleaseLock | IsFreeLock => Kind::Int,
            FoundRows => Kind::Int,
            Crc32 | BinaryNumber | ConnectionId | LastInsertId | Year | ReleaseAllLocks | IsUsedLock => Kind::UInt,
            Rand | Pow | Sqrt | Exp | Ln | Log | Log2 | Log10 | Pi => Kind::Double,
            Abs | Floor | Ceil | Round | Truncate if kind(0).is_temporal() => Kind::Double,
            Abs => number_kind(kind(0)),
            Floor | Ceil => match number_kind(kind(0)) {
                Kind::Decimal(_) if whole_digits(&args[0]).is_some_and(|n| n <= BIGINT_DIGITS) => Kind::Int,
                Kind::Decimal(_) => Kind::Decimal(0),
                k => k,
            },
            Round | Truncate => match (number_kind(kind(0)), args.get(1)) {
                (Kind::Decimal(_), None) => Kind::Decimal(0),
                (Kind::Decimal(scale), Some(Expr::Const(Datum::Int(n)))) => {
                    Kind::Decimal((*n).clamp(0, i64::from(scale)) as u8)
                }
                (k, _) => k,
            },
            Mod => Expr::Arith(crate::expr::ArithOp::Mod, Box::new(arg(args, 0)), Box::new(arg(args, 1))).kind(params),
            Greatest | Least | Coalesce => all(args),
            If => kind(1).unify(kind(2)),
            IfNull => kind(0).unify(kind(1)),
            NullIf => kind(0),
            Now | Sysdate | UtcTimestamp => Kind::DateTime(decimals(0)),
            CurTime | UtcTime => Kind::Time(decimals(0)),
            CurDate | UtcDate | Date | LastDay => Kind::Date,
            Time => match kind(0) {
                Kind::Time(n) | Kind::DateTime(n) => Kind::Time(n),
                Kind::Date => Kind::Time(0),
                _ => Kind::Time(time::digits_of(&arg(args, 0), params)),
            },
            Timestamp => Kind::DateTime(args.iter().map(|e| time::digits_of(e, params)).max().unwrap_or(0)),
            UnixTimestamp => match args.first().map(|e| e.kind(params)) {
                None | Some(Kind::Date | Kind::DateTime(0) | Kind::Int) => Kind::Int,
                _ => match time::digits_of(&arg(args, 0), params) {
                    0 => Kind::Int,
                    n => Kind::Decimal(n),
                },
            },
            FromUnixTime if args.len() == 2 => Kind::Text,
            FromUnixTime => Kind::DateTime(time::digits_of(&arg(args, 0), params)),
            DateAdd | DateSub => time::date_add_kind(kind(0), &time::unit_of(args)),
        }
    }
}

/// So many digits are a BIGINT, and one more.
const BIGINT_DIGITS: u32 = 17;

/// Digits before the point, where the expression says it.
fn whole_digits(e: &Expr) -> Option<u32> {
    match e {
        Expr::Const(Datum::Decimal { unscaled, scale }) => {
            Some((unscaled.unsigned_abs().checked_ilog10().unwrap_or(0) + 1).saturating_sub(u32::from(*scale)))
        }
        column => match column.column_type()? {
            ColumnType::Decimal { precision, scale, .. } => Some(u32::from(precision - scale)),
            _ => None,
        },
    }
}

fn number_kind(kind: Kind) -> Kind {
    match kind {
        Kind::Text | Kind::Bytes | Kind::Json => Kind::Double,
        Kind::Null | Kind::Date | Kind::DateTime(0) | Kind::Time(0) => Kind::Int,
        Kind::DateTime(n) | Kind::Time(n) => Kind::Decimal(n),
        k => k,
    }
}
