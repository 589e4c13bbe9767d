//! The machine's sources of Debian packages, rewritten for another suite.
//!
//! A machine may use its own mirror, proxy or snapshot, which the files of sources.list(5) name, in
//! either format. So everything in them is kept, and only the suite is replaced.

/// Sources for `suite` in the format of `*.sources` files, made from the entries for the machine's
/// own `codename`. Empty if there is none.
///
/// `deb822` are the contents of `*.sources` files, `one_line` those of `*.list` files.
pub(crate) fn for_suite(
    deb822: &[String],
    one_line: &[String],
    codename: &str,
    suite: &str,
) -> String {
    let stanzas = deb822.iter().flat_map(|text| stanzas(text));
    let lines = one_line.iter().flat_map(|text| text.lines().filter_map(line));
    let mut sources =
        stanzas.chain(lines).filter(|source| source.is_of(codename)).collect::<Vec<_>>();
    sources.dedup();
    sources.iter().map(|source| source.for_suite(suite)).collect()
}

/// One stanza, or one line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    uris: String,
    suites: Vec<String>,
    components: Vec<String>,
    /// `Signed-By` and all other options, as lines of a stanza.
    options: String,
}

impl Source {
    /// True for the machine's own release, but not for its updates and security fixes.
    fn is_of(&self, codename: &str) -> bool {
        let main = self.components.iter().any(|component| component == "main");
        main && self.suites.iter().any(|suite| suite == codename)
    }

    fn for_suite(&self, suite: &str) -> String {
        let Self { uris, options, .. } = self;
        format!("Types: deb\nURIs: {uris}\nSuites: {suite}\nComponents: main\n{options}\n")
    }
}

/// The enabled stanzas of a `*.sources` file for binary packages.
fn stanzas(text: &str) -> Vec<Source> {
    let text = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    text.split("\n\n").filter_map(stanza).collect()
}

fn stanza(text: &str) -> Option<Source> {
    let mut fields = Vec::<(String, String)>::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            value.push_str(&format!("\n{line}"));
        } else {
            let (name, value) = line.split_once(':')?;
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| fields.iter().find(|(is, _)| is == name).map(|(_, value)| &**value);
    let words = |name| field(name).map(words).unwrap_or_default();
    if field("enabled") == Some("no") || !words("types").contains(&"deb".to_owned()) {
        return None;
    }
    let is_kept =
        |name: &str| !["types", "uris", "suites", "components", "enabled"].contains(&name);
    let kept = fields.iter().filter(|(name, _)| is_kept(name));
    Some(Source {
        uris: field("uris")?.to_owned(),
        suites: words("suites"),
        components: words("components"),
        options: kept.map(|(name, value)| format!("{name}: {value}\n")).collect(),
    })
}

/// A line of a `*.list` file: `deb [option=value ...] uri suite component ...`.
fn line(text: &str) -> Option<Source> {
    let rest = text.trim().strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut rest = words(rest.split('#').next()?).into_iter();
    Some(Source {
        uris: rest.next()?,
        suites: vec![rest.next()?],
        components: rest.collect(),
        options: words(options).iter().filter_map(|option| line_option(option)).collect(),
    })
}

/// An option of the one-line format by its name in a stanza; only those that matter.
fn line_option(option: &str) -> Option<String> {
    let (name, value) = option.split_once('=')?;
    ["signed-by", "trusted", "check-valid-until"]
        .contains(&name)
        .then(|| format!("{name}: {}\n", value.replace(',', " ")))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
";

    #[test]
    fn only_the_suite_is_replaced() {
        let sources = for_suite(&[DEB822.to_owned()], &[], "bookworm", "trixie-backports");
        let expected = "\
Types: deb
URIs: http://mirror.example/debian
Suites: trixie-backports
Components: main
signed-by: /usr/share/keyrings/debian-archive-keyring.gpg

";
        assert_eq!(sources, expected);
    }

    #[test]
    fn a_key_within_the_file_stays_whole() {
        let key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END\n";
        let text = format!("Types: deb\nURIs: u\nSuites: forky\nComponents: main\n{key}");
        let sources = for_suite(&[text], &[], "forky", "s");
        let expected =
            "signed-by: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END\n\n";
        assert!(sources.ends_with(expected), "{sources}");
    }

    #[test]
    fn lines_are_understood_with_and_without_options() {
        let list = "\
# deb http://off.example/debian bookworm main
deb http://a.example/debian bookworm main contrib # ours
deb-src http://b.example/debian bookworm main
deb [arch=amd64 signed-by=/k1,/k2] http://c.example/debian bookworm main
deb http://d.example/debian bookworm contrib
deb http://e.example/debian bookworm-updates main
";
        let sources = for_suite(&[], &[list.to_owned()], "bookworm", "s");
        let expected = "\
Types: deb
URIs: http://a.example/debian
Suites: s
Components: main

Types: deb
URIs: http://c.example/debian
Suites: s
Components: main
signed-by: /k1 /k2

";
        assert_eq!(sources, expected);
    }

    #[test]
    fn another_distribution_has_none() {
        let ubuntu = "deb http://archive.ubuntu.com/ubuntu jammy main universe\n".to_owned();
        assert_eq!(for_suite(&[], &[ubuntu], "bookworm", "s"), "");
    }
}
