//! The names in a client's certificate, in one line each: `/C=SE/O=Apus/CN=client`, as OpenSSL writes them and REQUIRE SUBJECT and ISSUER name them.
//!
//! TLS has checked the certificate before; here its outermost parts are walked through (X.509: issuer and subject are the third and the fifth behind the version). Bytes that are no printable ASCII are
//! `\xHH`, and `/` and `+` within a value have a backslash in front.

/// Who a client is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub subject: String,
    pub issuer: String,
}

const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

impl Certificate {
    /// Of the bytes of one (DER); `None`: they are none.
    pub fn read(der: &[u8]) -> Option<Certificate> {
        let mut outer = Parts(Parts(der).of(SEQUENCE)?);
        let mut parts = Parts(outer.of(SEQUENCE)?);
        if parts.0.first() == Some(&VERSION) {
            parts.next()?;
        }
        parts.of(INTEGER)?; // serial number
        parts.of(SEQUENCE)?; // algorithm of the signature
        let issuer = parts.of(SEQUENCE)?;
        parts.of(SEQUENCE)?; // from when to when it is good
        let subject = parts.of(SEQUENCE)?;
        Some(Certificate { subject: line(subject)?, issuer: line(issuer)? })
    }
}

/// Elements one behind the other.
struct Parts<'d>(&'d [u8]);

impl<'d> Parts<'d> {
    /// The tag and the content of the next one.
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn of(&mut self, wanted: u8) -> Option<&'d [u8]> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
    }
}

fn line(name: &[u8]) -> Option<String> {
    let (mut sets, mut out) = (Parts(name), String::new());
    while !sets.0.is_empty() {
        let mut set = Parts(sets.of(SET)?);
        while !set.0.is_empty() {
            let mut pair = Parts(set.of(SEQUENCE)?);
            out.push('/');
            out += &attribute(pair.of(OBJECT)?);
            out.push('=');
            for &b in pair.next()?.1 {
                match b {
                    b'/' | b'+' => out.extend(['\\', char::from(b)]),
                    b' '..=b'~' => out.push(char::from(b)),
                    _ => out += &format!("\\x{b:02X}"),
                }
            }
        }
    }
    Some(out)
}

/// The short name of an attribute, or its numbers.
fn attribute(id: &[u8]) -> String {
    let name = match id {
        [0x55, 0x04, last] => match last {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "street",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            15 => "businessCategory",
            16 => "postalAddress",
            17 => "postalCode",
            41 => "name",
            42 => "GN",
            43 => "initials",
            44 => "generationQualifier",
            45 => "x500UniqueIdentifier",
            46 => "dnQualifier",
            65 => "pseudonym",
            97 => "organizationIdentifier",
            _ => "",
        },
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01" => "emailAddress",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x02" => "unstructuredName",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01" => "UID",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19" => "DC",
        _ => "",
    };
    if name.is_empty() { numbers(id) } else { name.to_owned() }
}

/// `1.2.840.113549`.
fn numbers(id: &[u8]) -> String {
    let (mut list, mut number) = (Vec::new(), 0u64);
    for b in id {
        number = number << 7 | u64::from(b & 0x7f);
        if b & 0x80 == 0 {
            if list.is_empty() {
                let first = (number / 40).min(2);
                list.push(first);
                number -= first * 40;
            }
            list.push(number);
            number = 0;
        }
    }
    list.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let head =
            if length < 0x80 { vec![tag, length as u8] } else { vec![tag, 0x82, (length >> 8) as u8, length as u8] };
        [head, content.to_vec()].concat()
    }
    fn name(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let pair = |(id, value): &(&[u8], &[u8])| {
            element(SET, &element(SEQUENCE, &[element(OBJECT, id), element(0x0c, value)].concat()))
        };
        element(SEQUENCE, &pairs.iter().map(pair).collect::<Vec<_>>().concat())
    }

    #[test]
    fn names_are_one_line() {
        let issuer = name(&[(b"\x55\x04\x06", b"SE"), (b"\x55\x04\x03", b"ca")]);
        let long = [b'x'; 200];
        let subject = name(&[
            (b"\x55\x04\x0a", "A/B+C, é".as_bytes()),
            (b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01", b"a@b.c"),
            (b"\x2a\x03\x04", &long),
        ]);
        let part = element(SEQUENCE, b"");
        for version in [element(VERSION, b"\x02\x01\x02"), Vec::new()] {
            let parts =
                [version, element(INTEGER, b"\x01"), part.clone(), issuer.clone(), part.clone(), subject.clone()];
            let der = element(SEQUENCE, &element(SEQUENCE, &parts.concat()));
            let read = Certificate::read(&der).unwrap();
            assert_eq!(read.issuer, "/C=SE/CN=ca");
            let subject = format!("/O=A\\/B\\+C, \\xC3\\xA9/emailAddress=a@b.c/1.2.3.4={}", "x".repeat(200));
            assert_eq!(read.subject, subject);
            (0..der.len()).for_each(|end| assert_eq!(Certificate::read(&der[..end]), None));
        }
    }
}
