//! Parser of filters, with the grammar of libpcap.
//!
//! ```text
//!  expr      = operand { ("and" | "or") operand }         of equal precedence, to the left
//!  operand   = "not" operand | "(" expr ")" | primitive | value    a value repeats what was before
//!  primitive = [proto] [way] [kind] values | proto | "vlan" [id] | ...
//!  values    = value | "not" values | "(" values { ("and" | "or") values } ")"
//! ```

use tapswitch_wire::MacAddr;

use super::FilterError;
use super::compile::BROADCAST;
use super::lexer::{Token, tokens};
use super::syntax::{Expr, IcmpField, Primitive, Way};
use super::words::{self, MIN_TYPE, ProtoWord};
use crate::IpPrefix;
use crate::family::Family;
use crate::port_range::PortRange;

/// Parses a filter.
pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    if text.len() > MAX_LEN {
        let what = format!("{} bytes; a filter may have at most {MAX_LEN}", text.len());
        return Err(FilterError::new(MAX_LEN, what, "split it into several policies"));
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        let remedy = "write one, as in `tcp port 80`, or leave the filter out";
        return Err(FilterError::new(0, "it is empty", remedy));
    }
    let mut parser = Parser { tokens, next: 0, end: text.len(), last: None, depth: 0 };
    let expr = parser.expr()?;
    match parser.peek() {
        Token { text: "", .. } => Ok(expr),
        rest => Err(parser.unexpected(rest)),
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
    end: usize,
    /// Qualifiers of the last value, which `port 80 or 443` repeats.
    last: Option<Head>,
    depth: usize,
}

/// Qualifiers of a value.
#[derive(Clone, Copy, Debug)]
struct Head {
    proto: Option<ProtoWord>,
    way: Way,
    kind: Kind,
    /// Position of the kind, or of the protocol.
    at: usize,
}

/// Kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

impl<'a> Parser<'a> {
    fn expr(&mut self) -> Result<Expr, FilterError> {
        let mut left = self.operand()?;
        while let Some(is_and) = self.junction() {
            let right = self.operand()?;
            left = join(left, is_and, right)?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expr, FilterError> {
        self.deeper(|parser| {
            if parser.accept(&["not", "!"]).is_some() {
                return Ok(Expr::Not(Box::new(parser.operand()?)));
            }
            if parser.accept(&["("]).is_some() {
                let inner = parser.expr()?;
                parser.close(")")?;
                return Ok(inner);
            }
            parser.primitive()
        })
    }

    fn primitive(&mut self) -> Result<Expr, FilterError> {
        let token = self.peek();
        if let Some((what, remedy)) = words::without_match(token.text) {
            return Err(FilterError::no_match(token.at, what, remedy));
        }
        if self.accept(&["vlan"]).is_some() {
            self.last = None;
            return self.vlan(token.at);
        }
        let proto = words::proto_word(token.text);
        if proto.is_some() {
            self.next += 1;
        }
        let after = self.peek();
        match (proto, after.text) {
            (_, "broadcast" | "multicast") => self.group_of_stations(proto, token.at),
            (Some(proto), "[") => self.byte(proto, token, after.at),
            (Some(_), "protochain" | "gateway") => Err(self.unexpected(after)),
            _ => self.qualified(proto, token),
        }
    }

    /// Qualifiers and a value, or a protocol alone.
    fn qualified(
        &mut self,
        proto: Option<ProtoWord>,
        token: Token<'a>,
    ) -> Result<Expr, FilterError> {
        let (before, way) = (self.next, self.way());
        let kind_at = self.peek().at;
        let kind = self.kind();
        let has_way = self.next > before && (kind.is_none() || self.next > before + 1);
        let head = match (proto, kind) {
            (proto, Some(kind)) => Head { proto, way, kind, at: kind_at },
            (proto, None) if has_way => Head { proto, way, kind: Kind::Host, at: token.at },
            (Some(proto), None) => {
                self.last = None;
                return proto_alone(proto, token.at);
            }
            (None, None) => return self.repeated(token),
        };
        self.last = Some(head);
        self.values(head)
    }

    /// A value that repeats the qualifiers of the last one.
    fn repeated(&mut self, token: Token<'a>) -> Result<Expr, FilterError> {
        match self.last {
            Some(head) if is_value(token) => self.value(head),
            _ if is_value(token) && token.text.parse::<IpPrefix>().is_ok() => {
                let remedy = format!("write `host {}`", token.text);
                Err(FilterError::new(token.at, "an address alone is not an expression", remedy))
            }
            _ => Err(self.unexpected(token)),
        }
    }

    fn values(&mut self, head: Head) -> Result<Expr, FilterError> {
        self.deeper(|parser| {
            if parser.accept(&["not", "!"]).is_some() {
                return Ok(Expr::Not(Box::new(parser.values(head)?)));
            }
            if parser.accept(&["("]).is_none() {
                return parser.value(head);
            }
            let mut left = parser.values(head)?;
            while let Some(is_and) = parser.junction() {
                left = join(left, is_and, parser.values(head)?)?;
            }
            parser.close(")")?;
            Ok(left)
        })
    }

    fn value(&mut self, head: Head) -> Result<Expr, FilterError> {
        let token = self.peek();
        if !token.is_word() {
            return Err(self.unexpected(token));
        }
        self.next += 1;
        let primitive = match (head.kind, head.proto) {
            (Kind::Proto, proto) => proto_value(proto, head, token)?,
            (Kind::Port | Kind::PortRange, proto) => port_value(proto, head, token)?,
            (Kind::Host, Some(ProtoWord::Ether)) => Primitive::Mac(head.way, mac(token)?),
            (Kind::Host | Kind::Net, proto) => {
                let family = address_family(proto, head)?;
                let prefix = match head.kind {
                    Kind::Net => self.net(token)?,
                    _ => host(token)?,
                };
                check_family(family, prefix, token)?;
                Primitive::Ip(family, head.way, prefix)
            }
        };
        Ok(Expr::Primitive(primitive, token.at))
    }

    /// A network: `10`, `10.0.0.0/8`, `10.0.0.0 mask 255.0.0.0`, `2001:db8::/32`.
    fn net(&mut self, token: Token<'a>) -> Result<IpPrefix, FilterError> {
        let (address, len) = match token.text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (token.text, None),
        };
        let Some((address, own_len)) = whole_address(address) else {
            return Err(no_address(token));
        };
        let len = match (len, self.accept(&["mask"])) {
            (None, Some(_)) => self.mask()?,
            (Some(len), None) => len.parse().map_err(|_| no_address(token))?,
            _ => own_len,
        };
        IpPrefix::new(address, len).ok_or_else(|| {
            let first = IpPrefix::around(address, len);
            let first = first.map_or_else(|| "a shorter length".to_owned(), |net| net.to_string());
            FilterError::new(
                token.at,
                format!("`{}` has bits set after the prefix length {len}", token.text),
                format!("write {first}, or `host` for one address"),
            )
        })
    }

    fn mask(&mut self) -> Result<u8, FilterError> {
        let token = self.peek();
        self.next += 1;
        let mask: Option<std::net::Ipv4Addr> = token.text.parse().ok();
        let ones = mask.map(|mask| (mask, mask.to_bits().leading_ones()));
        let sound = ones.filter(|(mask, ones)| mask.to_bits().count_ones() == *ones);
        sound.and_then(|(_, ones)| u8::try_from(ones).ok()).ok_or_else(|| {
            let what = format!("`{}` is not a contiguous netmask", token.text);
            FilterError::new(token.at, what, "write the network as in 10.0.0.0/8")
        })
    }

    fn vlan(&mut self, at: usize) -> Result<Expr, FilterError> {
        let token = self.peek();
        if !is_value(token) {
            return Ok(Expr::Primitive(Primitive::Vlan(None), at));
        }
        self.next += 1;
        let id = number(token)?;
        match u16::try_from(id) {
            Ok(id @ ..=4095) => Ok(Expr::Primitive(Primitive::Vlan(Some(id)), at)),
            _ => Err(too_large(token, 4095)),
        }
    }

    /// `broadcast` and `multicast`, for Ethernet or IP.
    fn group_of_stations(
        &mut self,
        proto: Option<ProtoWord>,
        at: usize,
    ) -> Result<Expr, FilterError> {
        let word = self.peek();
        self.next += 1;
        self.last = None;
        let dst = |family, text: &str| match text.parse() {
            Ok(prefix) => Ok(Primitive::Ip(Some(family), Way::Dst, prefix)),
            Err(_) => Err(FilterError::nothing()),
        };
        let primitive = match (proto, word.text) {
            (None | Some(ProtoWord::Ether), "broadcast") => Primitive::Mac(Way::Dst, BROADCAST),
            (None | Some(ProtoWord::Ether), _) => Primitive::Multicast,
            (Some(ProtoWord::Type(Family::Ipv4)), "broadcast") => {
                let remedy = "write the address, as in `dst host 10.0.0.255`, or `broadcast`";
                return Err(FilterError::new(
                    word.at,
                    "the broadcast address depends on a netmask, which is not known here",
                    remedy,
                ));
            }
            // As in libpcap: 224.0.0.0 and above.
            (Some(ProtoWord::Type(Family::Ipv4)), _) => dst(Family::Ipv4, "224.0.0.0/3")?,
            (Some(ProtoWord::Type(Family::Ipv6)), "multicast") => dst(Family::Ipv6, "ff00::/8")?,
            _ => return Err(self.unexpected(word)),
        };
        Ok(Expr::Primitive(primitive, at))
    }

    /// A byte by offset: OpenFlow matches only ICMP type and code.
    fn byte(
        &mut self,
        proto: ProtoWord,
        word: Token<'a>,
        bracket: usize,
    ) -> Result<Expr, FilterError> {
        self.last = None;
        let place = self.tokens.get(self.next + 1).copied().unwrap_or(self.at_end());
        let family = match proto {
            ProtoWord::Ip(Some(Family::Ipv4), 1) => Family::Ipv4,
            ProtoWord::Ip(Some(Family::Ipv6), 58) => Family::Ipv6,
            _ => return Err(no_bytes(word.text, bracket)),
        };
        let field = match place.text {
            "icmptype" | "icmp6type" | "0" | "0:1" => IcmpField::Type,
            "icmpcode" | "icmp6code" | "1" | "1:1" => IcmpField::Code,
            _ => return Err(no_bytes(word.text, bracket)),
        };
        self.next += 2;
        self.close("]")?;
        let relation = self.peek();
        let is_equal = match relation.text {
            "=" | "==" => true,
            "!=" => false,
            _ => {
                let what = "ranges of types and codes";
                let remedy = "compare with `=` or `!=`, and combine several with `or`";
                return Err(FilterError::no_match(relation.at, what, remedy));
            }
        };
        self.next += 1;
        let token = self.peek();
        self.next += 1;
        let value = match words::icmp_name(token.text) {
            Some(value) => value,
            None => u8::try_from(number(token)?).map_err(|_| too_large(token, 255))?,
        };
        let primitive = Primitive::Icmp { family, field, is_equal, value };
        Ok(Expr::Primitive(primitive, word.at))
    }

    /// `src`, `dst`, or a combination.
    fn way(&mut self) -> Way {
        let Some(first) = self.accept(&["src", "dst"]) else {
            return Way::Either;
        };
        let [junction, second] = [0, 1].map(|ahead| self.tokens.get(self.next + ahead));
        let (Some(junction), Some(second)) = (junction, second) else {
            return one_way(first);
        };
        let is_other = ["src", "dst"].contains(&second.text) && second.text != first.text;
        let way = match junction.text {
            "or" | "||" if is_other => Way::Either,
            "and" | "&&" if is_other => Way::Both,
            _ => return one_way(first),
        };
        self.next += 2;
        way
    }

    fn kind(&mut self) -> Option<Kind> {
        let word = self.accept(&["host", "net", "port", "portrange", "proto"])?;
        Some(match word.text {
            "host" => Kind::Host,
            "net" => Kind::Net,
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            _ => Kind::Proto,
        })
    }

    /// `Some(true)` for `and`.
    fn junction(&mut self) -> Option<bool> {
        let token = self.accept(&["and", "&&", "or", "||"])?;
        Some(matches!(token.text, "and" | "&&"))
    }

    fn accept(&mut self, texts: &[&str]) -> Option<Token<'a>> {
        let token = self.peek();
        let is_one = texts.contains(&token.text);
        self.next += usize::from(is_one);
        is_one.then_some(token)
    }

    fn close(&mut self, sign: &str) -> Result<(), FilterError> {
        let token = self.peek();
        match self.accept(&[sign]) {
            Some(_) => Ok(()),
            None if token.text.is_empty() => {
                let what = "the filter ends before a parenthesis or bracket is closed";
                Err(FilterError::new(token.at, what, format!("add `{sign}`")))
            }
            None => Err(self.unexpected(token)),
        }
    }

    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.next).copied().unwrap_or(self.at_end())
    }

    const fn at_end(&self) -> Token<'a> {
        Token { at: self.end, text: "" }
    }

    fn deeper(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Expr, FilterError>,
    ) -> Result<Expr, FilterError> {
        if self.depth == MAX_DEPTH {
            let what = format!("parentheses or `not` nested deeper than {MAX_DEPTH}");
            return Err(FilterError::new(self.peek().at, what, "use less nesting"));
        }
        self.depth += 1;
        let expr = read(self);
        self.depth -= 1;
        expr
    }

    fn unexpected(&self, token: Token<'a>) -> FilterError {
        let Token { at, text } = token;
        if let Some((what, remedy)) = words::without_match(text) {
            return FilterError::no_match(at, what, remedy);
        }
        match text {
            "" => FilterError::new(at, "the filter ends too early", EXPECTED),
            ")" => FilterError::new(at, "`)` closes nothing", "remove it, or open it before"),
            "&" | "|" => FilterError::new(
                at,
                format!("`{text}` combines bytes, not expressions"),
                format!("write `{text}{text}`, or the word"),
            ),
            _ if is_value(token) => {
                let what = format!("`{text}` has no keyword before it");
                FilterError::new(at, what, "write a keyword, as in `port 80` or `host 10.0.0.1`")
            }
            _ => FilterError::new(at, format!("`{text}` is not expected here"), EXPECTED),
        }
    }
}

fn join(left: Expr, is_and: bool, right: Expr) -> Result<Expr, FilterError> {
    let (outer, inner) = (left.needed_tag(), right.needed_tag());
    if is_and
        && outer.is_some()
        && let Some(at) = inner
    {
        return Err(FilterError::no_match(
            at,
            "an inner VLAN tag, to which a second `vlan` refers",
            "keep one `vlan`; combine alternatives with `or`",
        ));
    }
    let (left, right) = (Box::new(left), Box::new(right));
    Ok(if is_and { Expr::And(left, right) } else { Expr::Or(left, right) })
}

fn proto_alone(proto: ProtoWord, at: usize) -> Result<Expr, FilterError> {
    let primitive = match proto {
        ProtoWord::Ether => {
            let remedy = "write `ether host MAC`, `ether proto TYPE`, or leave it out";
            return Err(FilterError::new(at, "every frame is an Ethernet frame", remedy));
        }
        ProtoWord::Type(family) => Primitive::Type(family),
        ProtoWord::Ip(family, proto) => Primitive::Proto(family, proto),
    };
    Ok(Expr::Primitive(primitive, at))
}

fn proto_value(
    proto: Option<ProtoWord>,
    head: Head,
    token: Token<'_>,
) -> Result<Primitive, FilterError> {
    let name = token.text.trim_start_matches('\\');
    let family = match proto {
        Some(ProtoWord::Ether) => return ether_type(name, token).map(Primitive::Type),
        None => None,
        Some(ProtoWord::Type(family @ (Family::Ipv4 | Family::Ipv6))) => Some(family),
        Some(_) => {
            let remedy = "write `ip proto`, `ip6 proto` or `proto`";
            return Err(FilterError::new(head.at, "only IP has protocols by number", remedy));
        }
    };
    match words::ip_proto(name) {
        Some(proto) => Ok(Primitive::Proto(family, proto)),
        None => match u8::try_from(number(token)?) {
            Ok(proto) => Ok(Primitive::Proto(family, proto)),
            Err(_) => Err(too_large(token, 255)),
        },
    }
}

fn ether_type(name: &str, token: Token<'_>) -> Result<Family, FilterError> {
    if let Some(family) = words::ether_type(name) {
        return Ok(family);
    }
    if let Some((what, remedy)) = words::without_match(name) {
        return Err(FilterError::no_match(token.at, what, remedy));
    }
    match u16::try_from(number(token)?) {
        Ok(eth_type) if words::is_tag(eth_type) => {
            let what = "the type of a tag: the type is the one after all tags";
            Err(FilterError::no_match(token.at, what, "write `vlan`"))
        }
        Ok(eth_type @ MIN_TYPE..) => Ok(Family::of(tapswitch_wire::EtherType(eth_type))),
        Ok(_) => {
            let what = format!("`{}` is less than {MIN_TYPE:#x}: a length, not a type", token.text);
            Err(FilterError::new(token.at, what, "write a type, as in `ether proto 0x88cc`"))
        }
        Err(_) => Err(too_large(token, 0xffff)),
    }
}

fn port_value(
    proto: Option<ProtoWord>,
    head: Head,
    token: Token<'_>,
) -> Result<Primitive, FilterError> {
    let proto = match proto {
        None => None,
        Some(ProtoWord::Ip(_, proto)) if crate::IpProto(proto).has_ports() => Some(proto),
        Some(_) => {
            let what = "only TCP, UDP and SCTP have ports";
            let remedy = "write `tcp port`, `udp port`, `sctp port` or `port`; `ip and port` for \
                          one family";
            return Err(FilterError::new(head.at, what, remedy));
        }
    };
    let whole = port(token);
    let ends = token.text.split_once('-').filter(|_| head.kind == Kind::PortRange);
    let range = match (whole, ends) {
        (Ok(port), _) => PortRange::from(port),
        (Err(_), Some((first, last))) => {
            let at = |text| Token { at: token.at, text };
            let (first, last) = (port(at(first))?, port(at(last))?);
            PortRange::new(first, last).ok_or_else(|| {
                let what = format!("`{}` ends before it begins", token.text);
                FilterError::new(token.at, what, format!("write {last}-{first}"))
            })?
        }
        (Err(error), None) => return Err(error),
    };
    Ok(Primitive::Port(proto, head.way, range))
}

fn port(token: Token<'_>) -> Result<u16, FilterError> {
    match words::port(token.text) {
        Some(port) => Ok(port),
        None => u16::try_from(number(token)?).map_err(|_| too_large(token, 65_535)),
    }
}

/// The frames whose addresses are compared.
fn address_family(proto: Option<ProtoWord>, head: Head) -> Result<Option<Family>, FilterError> {
    match proto {
        None => Ok(None),
        Some(ProtoWord::Type(family @ (Family::Ipv4 | Family::Ipv6 | Family::Arp))) => {
            Ok(Some(family))
        }
        Some(ProtoWord::Type(_)) => Err(FilterError::no_match(
            head.at,
            "addresses in rarp",
            "write `rarp` alone, or `arp host`",
        )),
        Some(ProtoWord::Ether) => Err(FilterError::new(
            head.at,
            "MAC addresses have no networks",
            "write `ether host`, or `net` alone",
        )),
        Some(ProtoWord::Ip(..)) => Err(FilterError::new(
            head.at,
            "this protocol has no `host` or `net`",
            "write it separately, as in `tcp and host 10.0.0.1`",
        )),
    }
}

fn check_family(
    family: Option<Family>,
    prefix: IpPrefix,
    token: Token<'_>,
) -> Result<(), FilterError> {
    let (is_ipv4, is) = match prefix.is_ipv4() {
        true => (true, "IPv4"),
        false => (false, "IPv6"),
    };
    match family {
        Some(Family::Ipv6) if is_ipv4 => Err(wrong_family(token, is, "IPv6", "ip")),
        Some(Family::Ipv4) if !is_ipv4 => Err(wrong_family(token, is, "IPv4", "ip6")),
        Some(Family::Arp) if !is_ipv4 => Err(wrong_family(token, is, "IPv4", "ip6")),
        _ => Ok(()),
    }
}

fn wrong_family(token: Token<'_>, is: &str, wanted: &str, word: &str) -> FilterError {
    let what = format!("`{}` is an address of {is}, but {wanted} is required", token.text);
    FilterError::new(token.at, what, format!("write `{word}` before it, or no protocol"))
}

fn host(token: Token<'_>) -> Result<IpPrefix, FilterError> {
    if let Ok(address) = token.text.parse::<std::net::IpAddr>() {
        return Ok(IpPrefix::host(address));
    }
    match whole_address(token.text.split('/').next().unwrap_or_default()) {
        Some(_) => {
            let what = format!("`{}` is not a complete address", token.text);
            Err(FilterError::new(token.at, what, format!("write `net {}`", token.text)))
        }
        None => Err(no_address(token)),
    }
}

/// An address whose last parts may be missing, and the number of bits present.
fn whole_address(text: &str) -> Option<(std::net::IpAddr, u8)> {
    if let Ok(address) = text.parse::<std::net::Ipv6Addr>() {
        return Some((address.into(), 128));
    }
    let parts: Vec<_> = text.split('.').map(|part| part.parse::<u8>().ok()).collect();
    let mut bytes = [0; 4];
    for (byte, part) in bytes.iter_mut().zip(&parts) {
        *byte = (*part)?;
    }
    let len = u8::try_from(8 * parts.len()).ok()?;
    (parts.len() <= 4).then_some((bytes.into(), len))
}

fn mac(token: Token<'_>) -> Result<MacAddr, FilterError> {
    read_mac(token.text).ok_or_else(|| {
        let what = format!("`{}` is not a MAC address", token.text);
        FilterError::new(token.at, what, "write it as in 02:00:00:00:00:01")
    })
}

/// `2:0:0:0:0:1`, `02-00-...`, `02.00....`, `0200.0000.0001`, `020000000001`.
fn read_mac(text: &str) -> Option<MacAddr> {
    let parts: Vec<_> = text.split([':', '-', '.']).collect();
    let digits_each = 12 / parts.len().max(1);
    let is_sound = matches!(parts.len(), 1 | 3 | 6)
        && parts.iter().all(|part| {
            let len = part.len();
            let is_whole = len == digits_each || parts.len() == 6 && len == 1;
            is_whole && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
    let bits = parts.iter().filter(|_| is_sound).try_fold(0u64, |bits, part| {
        u64::from_str_radix(part, 16).ok().map(|value| bits << (4 * digits_each) | value)
    })?;
    let [_, _, bytes @ ..] = bits.to_be_bytes();
    is_sound.then_some(MacAddr(bytes))
}

/// Decimal, or hexadecimal after `0x`.
fn number(token: Token<'_>) -> Result<u32, FilterError> {
    let text = token.text;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match digits {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        // libpcap reads a leading 0 as octal; nothing else does.
        None if text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0')) =>
        {
            text.parse().ok()
        }
        _ => None,
    };
    value.ok_or_else(|| match text {
        "" => FilterError::new(token.at, "the filter ends where a number is expected", EXPECTED),
        _ => FilterError::new(
            token.at,
            format!("`{text}` is not a number or a known name"),
            "write the number, as in 80 or 0x50",
        ),
    })
}

fn too_large(token: Token<'_>, max: u32) -> FilterError {
    let what = format!("`{}` is larger than {max}", token.text);
    FilterError::new(token.at, what, "write a smaller number")
}

fn no_address(token: Token<'_>) -> FilterError {
    let what = format!("`{}` is not an address; names are not resolved", token.text);
    FilterError::new(token.at, what, "write the IP address, or a network as in 10.0.0.0/8")
}

fn no_bytes(word: &str, at: usize) -> FilterError {
    let (what, remedy) = match word {
        "tcp" => (
            "flags and other bytes of TCP",
            "leave it out: the whole connection is copied, and the monitor can filter further",
        ),
        "ether" => ("bytes by offset", "write `ether host`, `ether proto`, `multicast`"),
        _ => ("bytes by offset", "leave it out, and filter further at the monitor"),
    };
    FilterError::no_match(at, what, remedy)
}

fn one_way(word: Token<'_>) -> Way {
    if word.text == "src" { Way::Src } else { Way::Dst }
}

/// Whether a word is a value rather than a misspelt keyword.
fn is_value(token: Token<'_>) -> bool {
    let first = token.text.chars().next();
    first.is_some_and(|c| c.is_ascii_digit() || c == ':') || token.text.contains(':')
}

const EXPECTED: &str = "expected something like `tcp port 80`, `host 10.0.0.1` or `not arp`";
/// Maximum bytes of a filter: enough for some hundred hosts.
pub(crate) const MAX_LEN: usize = 4096;
/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 64;
