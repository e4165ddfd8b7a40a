//! Which account a login means: patterns of hosts, and their order.
//!
//! A host is a name, an address, an address with a mask (`10.0.0.0/255.255.255.0` or `10.0.0.0/24`), or a pattern with `%` and `_`. Loopback addresses are `localhost`, too; no other
//! address is looked up by name. Of several accounts that match, one without wildcards comes before one with a mask, that before patterns, and these by how many characters stand before
//! the first wildcard; an account for any user comes behind the ones of the user.

use std::{cmp::Ordering, net::IpAddr};

use super::AccountName;

/// Whether the pattern of an account's host matches a client's address.
pub fn matches(pattern: &str, address: &str) -> bool {
    if pattern == "%" {
        return true;
    }
    let ip = match address {
        "localhost" => Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        _ => address.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()),
    };
    if ip.is_some_and(|ip| ip.is_loopback()) && like(pattern, "localhost") {
        return true;
    }
    if let Some((network, mask)) = pattern.split_once('/') {
        return ip.is_some_and(|ip| is_in_network(ip, network, mask));
    }
    match ip {
        Some(ip) => like(pattern, &ip.to_string()),
        None => like(pattern, &address.to_ascii_lowercase()),
    }
}

fn is_in_network(ip: IpAddr, network: &str, mask: &str) -> bool {
    let (Ok(network), IpAddr::V4(ip)) = (network.parse::<std::net::Ipv4Addr>(), ip) else { return false };
    let bits = match (mask.parse::<u32>(), mask.parse::<std::net::Ipv4Addr>()) {
        (Ok(length @ 0..=32), _) => u32::MAX.checked_shl(32 - length).unwrap_or(0),
        (_, Ok(mask)) => mask.to_bits(),
        _ => return false,
    };
    ip.to_bits() & bits == network.to_bits()
}

/// `%` and `_` of a pattern, a backslash before a character that is meant as such.
pub fn like(pattern: &str, text: &str) -> bool {
    apus_types::collate::like(text.as_bytes(), pattern.as_bytes(), Some(b'\\'), None)
}

/// How much a pattern says: more is more specific.
pub fn specificity(pattern: &str) -> usize {
    let mut count = 0;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' | '_' => return count,
            '\\' => _ = chars.next(),
            _ => {}
        }
        count += 1;
    }
    usize::MAX
}

fn rank(host: &str) -> (u8, usize) {
    let said = specificity(host);
    match said {
        usize::MAX if !host.contains('/') => (2, 0),
        // Of two networks the smaller one, whose mask is the greater number.
        usize::MAX => (1, host.len()),
        said => (0, said),
    }
}

/// The order in which logins look at accounts.
pub fn order(a: &AccountName, b: &AccountName) -> Ordering {
    let anonymous = |name: &AccountName| name.user.is_empty();
    rank(&b.host).cmp(&rank(&a.host)).then(anonymous(a).cmp(&anonymous(b))).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match() {
        for (pattern, address, expected) in [
            ("%", "1.2.3.4", true),
            ("1.2.3.%", "1.2.3.4", true),
            ("1.2.3.%", "1.2.30.4", false),
            ("1.2.3._", "1.2.3.44", false),
            ("localhost", "127.0.0.1", true),
            ("localhost", "::1", true),
            ("localhost", "localhost", true),
            ("127.0.0.%", "localhost", true),
            ("10.%", "localhost", false),
            ("localhost", "10.0.0.1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("10.0.0.0/8", "10.200.1.1", true),
            ("10.0.0.0/255.255.0.0", "10.0.3.4", true),
            ("10.0.0.0/255.255.0.0", "10.1.3.4", false),
            ("10.0.0.1/255.255.0.0", "10.0.0.1", false),
            ("10.0.0.0/99", "10.0.0.0", false),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("10.0.0.0/8", "::2", false),
        ] {
            assert_eq!(matches(pattern, address), expected, "{pattern} {address}");
        }
    }

    #[test]
    fn what_says_more_comes_first() {
        assert_eq!(specificity("a\\_b"), usize::MAX);
        assert_eq!(specificity("a\\_b%"), 3);
        assert_eq!(specificity("%"), 0);
        let name = |user: &str, host: &str| AccountName::new(user, host);
        let mut names =
            [name("", "%"), name("u", "%"), name("u", "a%"), name("u", "ab_"), name("", "h"), name("u", "h")];
        names.sort_by(order);
        let sorted: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(sorted, ["u@h", "@h", "u@ab_", "u@a%", "u@%", "@%"]);
    }
}
