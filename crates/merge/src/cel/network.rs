//! Why a text is no address or network, in the words of Go's `net/netip` and of upstream's library.

use super::Cel;
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError};
use std::net::{IpAddr, Ipv6Addr};

/// Around a text that is to be an address, or a network: the library says in words of its own what is wrong with it.
pub(super) const ADDRESS: &str = "@address";
pub(super) const NETWORK: &str = "@network";
const NO_NETWORK: &str = "network address parse error during conversion from string";

pub(super) fn add_functions(context: &mut Context<'_>) {
    let checked = |value: Cel, name: &str, fault: fn(&str) -> Option<String>| match &value {
        Cel::String(text) => match fault(text) {
            Some(fault) => Err(ExecutionError::function_error(name, fault)),
            None => Ok(value),
        },
        _ => Ok(value),
    };
    context.add_function(ADDRESS, move |This(value): This<Cel>| checked(value, "ip", address_fault));
    context.add_function(NETWORK, move |This(value): This<Cel>| checked(value, "cidr", network_fault));
}

/// `None`: it is one.
fn address_fault(text: &str) -> Option<String> {
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Some(format!("IP address {text:?} with zone value is not allowed"));
    }
    match unparsed(text) {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Some(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        Ok(_) => None,
        Err(fault) => Some(format!("IP Address {text:?} parse error during conversion from string: {fault}")),
    }
}

/// `None`: it is one.
fn network_fault(text: &str) -> Option<String> {
    // upstream says twice what went wrong where Go's parser refuses the text
    let fault = |why: String| Some(format!("{NO_NETWORK}: {NO_NETWORK}: netip.ParsePrefix({text:?}): {why}"));
    let Some((address, bits)) = text.rsplit_once('/') else { return fault("no '/'".to_owned()) };
    if let Some((whole, zone)) = address.split_once('%')
        && !zone.is_empty()
        && whole.parse::<Ipv6Addr>().is_ok()
    {
        return fault("IPv6 zones cannot be present in a prefix".to_owned());
    }
    let address = match unparsed(address) {
        Ok(address) => address,
        Err(why) => return fault(why),
    };
    let is_number = bits.parse::<u32>().is_ok() && (bits.len() == 1 || !bits.starts_with(['0', '+']));
    if !is_number {
        return fault(format!("bad bits after slash: {bits:?}"));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    if bits.parse::<u32>().is_ok_and(|bits| bits > most) {
        return fault("prefix length out of range".to_owned());
    }
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Some(format!("{NO_NETWORK}: IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        _ => None,
    }
}

/// The address, or why there is none, as Go's `ParseAddr` tells it.
pub(super) fn unparsed(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        let (why, at) = match text.find(['.', ':', '%']).and_then(|at| text[at..].chars().next()) {
            Some('.') => v4_fault(text),
            Some(':') => v6_fault(text),
            Some(_) => ("missing IPv6 address", ""),
            None => ("unable to parse IP", ""),
        };
        let place = if at.is_empty() { String::new() } else { format!(" (at {at:?})") };
        format!("ParseAddr({text:?}): {why}{place}")
    })
}

/// What is wrong, and what is left of the text where it shows.
type Fault<'a> = (&'static str, &'a str);

fn v4_fault(text: &str) -> Fault<'_> {
    let mut fields = text.split('.').peekable();
    let (mut at, mut count) = (0, 0);
    while let Some(field) = fields.next() {
        let is_last = fields.peek().is_none();
        let mut value = 0;
        for (digits, (offset, c)) in field.char_indices().enumerate() {
            let Some(digit) = c.to_digit(10) else { return ("unexpected character", &text[at + offset..]) };
            if digits == 1 && value == 0 {
                return ("IPv4 field has octet with leading zero", "");
            }
            value = value * 10 + digit;
            if value > 255 {
                return ("IPv4 field has value >255", "");
            }
        }
        if is_last {
            break;
        }
        // the point after this field
        let point = at + field.len();
        let rest = &text[point..];
        if field.is_empty() || rest.len() == 1 {
            return ("IPv4 field must have at least one digit", rest);
        }
        count += 1;
        if count == 4 {
            return ("IPv4 address too long", "");
        }
        at = point + 1;
    }
    ("IPv4 address too short", "")
}

fn v6_fault(text: &str) -> Fault<'_> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    if zone == Some("") {
        return ("zone must be a non-empty string", "");
    }
    // bytes that are told so far; whether some are left out
    let (mut told, mut gap) = (0, false);
    if let Some(after) = rest.strip_prefix("::") {
        gap = true;
        rest = after;
    }
    while told < 16 {
        let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if digits > 4 {
            return ("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return ("each colon-separated field must have at least one digit", rest);
        }
        let after = &rest[digits..];
        if after.starts_with('.') {
            return match () {
                () if !gap && told != 12 => {
                    ("embedded IPv4 address must replace the final 2 fields of the address", rest)
                }
                () if told + 4 > 16 => ("too many hex fields to fit an embedded IPv4 at the end of the address", rest),
                () => v4_fault(rest),
            };
        }
        told += 2;
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(next) = rest.strip_prefix(':') else { return ("unexpected character, want colon", rest) };
        if next.is_empty() {
            return ("colon must be followed by more characters", rest);
        }
        rest = next;
        if let Some(next) = rest.strip_prefix(':') {
            if gap {
                return ("multiple :: in address", rest);
            }
            gap = true;
            rest = next;
            if rest.is_empty() {
                break;
            }
        }
    }
    match () {
        () if !rest.is_empty() => ("trailing garbage after address", rest),
        () if told < 16 => ("address string too short", ""),
        () => ("the :: must expand to at least one field of zeros", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_addresses_have_go_s_words() {
        let cases = [
            ("x", "unable to parse IP"),
            ("", "unable to parse IP"),
            ("%eth0", "missing IPv6 address"),
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
            (".1.2.3", "IPv4 field must have at least one digit (at \".1.2.3\")"),
            ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
            ("01.2.3.4", "IPv4 field has octet with leading zero"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("1.2.x.4", "unexpected character (at \"x.4\")"),
            ("1.2.3.4/8", "unexpected character (at \"/8\")"),
            ("fe80::1%", "zone must be a non-empty string"),
            ("12345::", "each group must have 4 or less digits (at \"12345::\")"),
            (":1", "each colon-separated field must have at least one digit (at \":1\")"),
            ("1:2", "address string too short"),
            ("1:", "colon must be followed by more characters (at \":\")"),
            ("1:x", "each colon-separated field must have at least one digit (at \"x\")"),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            ("1:2x", "unexpected character, want colon (at \"x\")"),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
            ("1:2:3:4:5:6:7::8", "the :: must expand to at least one field of zeros"),
            ("1:2.3.4.5", "embedded IPv4 address must replace the final 2 fields of the address (at \"2.3.4.5\")"),
            ("::1.2.3", "IPv4 address too short"),
        ];
        for (text, why) in cases {
            let told =
                format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {why}");
            assert_eq!(address_fault(text), Some(told), "{text:?}");
        }
        let zoned = "IP address \"fe80::1%eth0\" with zone value is not allowed";
        assert_eq!(address_fault("fe80::1%eth0").as_deref(), Some(zoned));
        let mapped = "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed";
        assert_eq!(address_fault("::ffff:1.2.3.4").as_deref(), Some(mapped));
        assert_eq!((address_fault("1.2.3.4"), address_fault("::1")), (None, None));
    }

    #[test]
    fn faults_of_networks_have_go_s_words() {
        let cases = [
            ("x", "no '/'"),
            ("10.0.0.0", "no '/'"),
            ("x/8", "ParseAddr(\"x\"): unable to parse IP"),
            ("10.0.0.0/", "bad bits after slash: \"\""),
            ("10.0.0.0/08", "bad bits after slash: \"08\""),
            ("10.0.0.0/+8", "bad bits after slash: \"+8\""),
            ("10.0.0.0/a", "bad bits after slash: \"a\""),
            ("10.0.0.0/33", "prefix length out of range"),
            ("::1/129", "prefix length out of range"),
            ("fe80::1%eth0/8", "IPv6 zones cannot be present in a prefix"),
        ];
        for (text, why) in cases {
            let told = format!("{NO_NETWORK}: {NO_NETWORK}: netip.ParsePrefix({text:?}): {why}");
            assert_eq!(network_fault(text), Some(told), "{text:?}");
        }
        let mapped = format!("{NO_NETWORK}: IPv4-mapped IPv6 address \"::ffff:1.2.3.4/96\" is not allowed");
        assert_eq!(network_fault("::ffff:1.2.3.4/96"), Some(mapped));
        assert_eq!((network_fault("10.0.0.0/8"), network_fault("::/0")), (None, None));
    }
}
