//! Packed calendar values: integers that order as the dates do and unpack without division by month lengths.

/// A calendar date and time of day, not tied to a zone. Zero dates (`0000-00-00`) are representable, as in MySQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub struct Civil {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub micros: u32,
}

/// `year << 9 | month << 5 | day`.
pub fn pack_date(year: u16, month: u8, day: u8) -> u32 {
    u32::from(year) << 9 | u32::from(month & 15) << 5 | u32::from(day & 31)
}
pub fn unpack_date(packed: u32) -> (u16, u8, u8) {
    ((packed >> 9) as u16, (packed >> 5 & 15) as u8, (packed & 31) as u8)
}
/// `date << 37 | hour << 32 | minute << 26 | second << 20 | micros`.
pub fn pack_datetime(c: Civil) -> u64 {
    u64::from(pack_date(c.year, c.month, c.day)) << 37
        | u64::from(c.hour & 31) << 32
        | u64::from(c.minute & 63) << 26
        | u64::from(c.second & 63) << 20
        | u64::from(c.micros & 0xf_ffff)
}
pub fn unpack_datetime(packed: u64) -> Civil {
    let (year, month, day) = unpack_date((packed >> 37) as u32);
    Civil {
        year,
        month,
        day,
        hour: (packed >> 32 & 31) as u8,
        minute: (packed >> 26 & 63) as u8,
        second: (packed >> 20 & 63) as u8,
        micros: (packed & 0xf_ffff) as u32,
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date (Hinnant's `days_from_civil`).
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// Inverse of [`days_from_civil`]: (year, month, day).
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// UTC civil time of a Unix timestamp in microseconds; years outside 0..=9999 saturate.
pub fn civil_from_unix_micros(micros: i64) -> Civil {
    let seconds = micros.div_euclid(1_000_000);
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    Civil {
        year: year.clamp(0, 9999) as u16,
        month: month as u8,
        day: day as u8,
        hour: (of_day / 3600) as u8,
        minute: (of_day / 60 % 60) as u8,
        second: (of_day % 60) as u8,
        micros: micros.rem_euclid(1_000_000) as u32,
    }
}

/// Unix microseconds of a UTC civil time.
pub fn unix_micros_from_civil(c: Civil) -> i64 {
    let days = days_from_civil(i64::from(c.year), u32::from(c.month), u32::from(c.day));
    (days * 86_400 + i64::from(c.hour) * 3600 + i64::from(c.minute) * 60 + i64::from(c.second)) * 1_000_000
        + i64::from(c.micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_round_trips() {
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        assert_eq!(days_from_civil(2000, 3, 1), 11_017);
        for days in (-800_000..2_900_000).step_by(97) {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
        }
        let c = Civil { year: 2026, month: 11, day: 21, hour: 23, minute: 59, second: 58, micros: 999_999 };
        assert_eq!(unpack_datetime(pack_datetime(c)), c);
        assert_eq!(civil_from_unix_micros(unix_micros_from_civil(c)), c);
    }
}
