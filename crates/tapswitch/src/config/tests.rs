//! Tests of configuration files and their errors.

use tapswitch_controller::StoreConfig;
use tapswitch_switch::usable_cores;

use super::*;

const GOOD: &str = r#"
bridge = "lab0"

[switch]
datapath-id = "0x2a"
fail-mode = "secure"
learning = "stack"
listen = ["tcp:127.0.0.1:6654"]
port = ["1=tap:web0,netns=web", "2=netdev:eth1"]

[controller]

[[policy]]
name = "web"
monitor = "2"
dst-port = 80
"#;

fn error(text: &str) -> String {
    RunConfig::parse(text).unwrap_err().at(Path::new("lab.toml"), text).to_string()
}

#[test]
fn a_good_file_says_it_all() {
    let config = RunConfig::parse(GOOD).unwrap();
    assert_eq!(config.switch.name, "lab0");
    assert_eq!(config.switch.datapath_id, DatapathId(0x2a));
    assert_eq!(config.switch.ports.len(), 2);
    assert_eq!(config.switch.learning, Learning::Stack);
    let own: Endpoint = "tcp:127.0.0.1:6653".parse().unwrap();
    assert_eq!(config.switch.controllers, [own], "its own controller");
    assert_eq!(config.controller.unwrap().policies.len(), 1);
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let example = include_str!("../../../../examples/tapswitch.toml");
    let readme = include_str!("../../../../README.md");
    let shown = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let parse = |text| toml::from_str::<toml::Value>(text).unwrap();
    assert_eq!(parse(shown), parse(example));
}

#[test]
fn the_pages_have_each_key() {
    let configuration = include_str!("../../../../docs/configuration.md");
    let part = |title: &str| configuration.split(&format!("`{title}`")).nth(1).unwrap();
    let [switch, controller] = ["[switch]", "[controller]"].map(part);
    let switch = switch.split("`[controller]`").next().unwrap();
    let taps = include_str!("../../../../docs/taps.md");
    let sections = [("[switch]", switch, ""), ("[controller]", controller, "")];
    for (section, page, dashes) in [&sections[..], &[("[[policy]]", taps, "--")]].concat() {
        let text = GOOD.replace(section, &format!("{section}\nno-such = 1"));
        let known = error(&text);
        let known = known.lines().next().unwrap().split_once("expected one of").unwrap().1;
        let keys: Vec<_> = tapswitch_controller::quoted(known).collect();
        assert!(keys.len() > 10, "{known}");
        for key in keys {
            let is_there = page.contains(&format!("`{dashes}{key}`"));
            assert!(is_there || key == "name", "{key} of {section}");
        }
    }
}

#[test]
fn who_forgets_policies_says_so_or_is_said_to() {
    for (controller, forgets) in [
        ("[controller]", true),
        ("[controller]\nstore = \"none\"", false),
        ("[controller]\nstore = \"/var/lib/tapswitch/lab.redb\"", false),
    ] {
        let text = GOOD.replace("[controller]", controller);
        assert_eq!(RunConfig::parse(&text).unwrap().forgets, forgets, "{controller}");
    }
    let alone = GOOD.split("[controller]").next().unwrap();
    assert!(!RunConfig::parse(alone).unwrap().forgets, "it has none");
}

#[test]
fn errors_name_file_line_key_and_what_was_expected() {
    let text = GOOD.replace("fail-mode", "fail-mood");
    let error_text = error(&text);
    assert!(error_text.starts_with("lab.toml:6:1: unknown field `fail-mood`"), "{error_text}");
    assert!(error_text.contains("`fail-mode`"), "names the keys that there are: {error_text}");
    let error_text = error(&GOOD.replace("1=tap:web0", "1=veth:web0"));
    assert!(error_text.starts_with("lab.toml:9:9: switch.port: port '1=veth:web0"), "{error_text}");
    assert!(error_text.contains("expected tap, tun, netdev, vhost, vxlan"), "{error_text}");
    let error_text = error(&GOOD.replace("1=tap:web0", "1=tap:sixteen-bytes-xy"));
    assert!(error_text.starts_with("lab.toml:9:9: switch.port: port '1=tap:six"), "{error_text}");
    assert!(error_text.contains("is longer than 15 bytes"), "{error_text}");
    let error_text = error(&GOOD.replace("2=netdev:eth1", "2=netdev:eth1,mode=acess"));
    assert!(error_text.starts_with("lab.toml:9:33: switch.port: port '2="), "{error_text}");
    assert!(error_text.contains("mode=acess: expected access, trunk"), "{error_text}");
    let error_text = error(&GOOD.replace("\"stack\"", "\"inner\""));
    assert!(error_text.starts_with("lab.toml:7:12: unknown variant `inner`"), "{error_text}");
    let text = GOOD.replace("dst-port = 80", "vlan = 5000");
    let error_text = error(&text);
    assert!(error_text.starts_with("lab.toml:16:1: policy 'web': vlan"), "{error_text}");
    let error_text = error(&GOOD.replace("dst-port = 80", "priority = 300"));
    assert!(error_text.contains("expected a number from 0 to 255"), "{error_text}");
    let error_text = error(&GOOD.replace("\"0x2a\"", "42"));
    assert!(error_text.contains("expected text; write it in quotes"), "{error_text}");
    let error_text = error(&GOOD.replace("dst-port = 80", "dst-port = \"http\""));
    assert!(error_text.starts_with("lab.toml:16:"), "{error_text}");
    assert!(error_text.contains("in: dst-port = \"http\""), "{error_text}");
}

#[test]
fn names_and_numbers_are_within_bounds() {
    for name in ["", "../x", "a b", "-x", "\\n", &"x".repeat(65)] {
        let error_text = error(&GOOD.replace("lab0", name));
        assert!(error_text.starts_with("lab.toml:2:10: "), "{error_text}");
        assert!(error_text.contains("is not a valid bridge name; expected"), "{error_text}");
    }
    for count in ["0", "129", "-1"] {
        let text = GOOD.replace("fail-mode", &format!("workers = {count}\nfail-mode"));
        let error_text = error(&text);
        assert!(error_text.starts_with("lab.toml:6:11: "), "{error_text}");
        assert!(error_text.contains("expected 1 to 128"), "{error_text}");
    }
    let text = GOOD.replace("fail-mode", "workers = 128\nfail-mode");
    assert_eq!(RunConfig::parse(&text).unwrap().switch.workers, NonZeroUsize::new(128));
}

#[test]
fn echo_requests_are_every_few_seconds_or_never() {
    let with = |interval: &str| GOOD.replace("fail-mode", &format!("{interval}\nfail-mode"));
    for (key, interval) in [
        ("", Duration::from_secs(5)),
        ("echo-interval = 60", Duration::from_secs(60)),
        ("echo-interval = 0", Duration::MAX),
    ] {
        assert_eq!(RunConfig::parse(&with(key)).unwrap().switch.echo_interval, interval);
        let text = GOOD.replace("[controller]", &format!("[controller]\n{key}"));
        let controller = RunConfig::parse(&text).unwrap().controller.unwrap();
        assert_eq!(controller.channel.echo_interval, interval);
    }
    let error_text = error(&with("echo-interval = -1"));
    assert!(error_text.starts_with("lab.toml:6:17: "), "{error_text}");
    assert!(error_text.contains("expected 1 to 86400 seconds, or 0"), "{error_text}");
}

#[test]
fn what_is_wrong_is_said_in_words_of_the_file() {
    let with = |key: &str| error(&format!("[switch]\nport = []\n{key}\n"));
    for (key, words) in [
        ("fail-mode = true", "3:13: expected text; write it in quotes"),
        ("[controller]\nstore = \"\"", "4:9: controller.store: empty value; expected a file"),
        ("learning = 3", "3:12: expected text; write it in quotes"),
        ("cores = 1", "write it in brackets: [...]"),
        ("listen = \"tcp:[::1]:1\"", "write it in brackets: [\"...\"]"),
        ("[controller]\n[[policy]]\nname = \"a\"\nmonitor = \"3\"", "switch has no ports"),
    ] {
        let text = with(key);
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(error(""), "lab.toml:1:1: missing field `switch`");
    for (text, words) in [
        ("[[switch]]\nport = []", "1:1: there is one section of this name; write it in single"),
        ("[switch]\n[[controller]]", "write it in single brackets: [controller]"),
        ("switch = 3", "1:10: invalid type: integer `3`, expected a section: keys below"),
        ("[switch]\n[policy]", "write it in double brackets, as in [[policy]]"),
        ("policy = [3]", "expected a section: keys below a heading in brackets"),
    ] {
        let told = error(text);
        assert!(told.contains(words), "{told}");
    }
    for id in ["0", "0x0"] {
        let text = with(&format!("datapath-id = \"{id}\""));
        assert!(text.starts_with("lab.toml:3:15: "), "{text}");
        assert!(text.contains("it is zero; give each switch of a controller its own"), "{text}");
        assert!(text.ends_with(&format!("in: datapath-id = \"{id}\"")), "{text}");
    }
    let long = with(&"x".repeat(1 << 20));
    assert!(long.len() < 300 && long.ends_with("xxx..."), "{long}");
}

/// Ports are added while it runs.
#[test]
fn a_switch_may_begin_without_ports() {
    for ports in ["", "port = []"] {
        let config = RunConfig::parse(&format!("[switch]\n{ports}\n")).unwrap();
        assert!(config.switch.ports.is_empty(), "{ports}");
    }
}

#[test]
fn cores_are_those_that_are_there_each_once() {
    let with = |cores: &str| GOOD.replace("fail-mode", &format!("cores = {cores}\nfail-mode"));
    let core = usable_cores()[0];
    assert_eq!(RunConfig::parse(&with(&format!("[{core}]"))).unwrap().switch.cores, [core]);
    for cores in ["1023", "1024", "-1"] {
        let error_text = error(&with(&format!("[{core}, {cores}]")));
        assert!(error_text.starts_with("lab.toml:6:13: switch.cores: "), "{error_text}");
        assert!(error_text.contains(&format!("'{cores}'")), "{error_text}");
        assert!(error_text.contains(&format!("; expected {core}")), "{error_text}");
    }
    let error_text = error(&with(&format!("[{core}, {core}]")));
    assert!(error_text.contains("6:13: switch.cores: it is in the list twice"));
}

#[test]
fn tls_is_whole_or_not_there() {
    let with = |keys: &str| GOOD.replace("fail-mode", &format!("{keys}\nfail-mode"));
    let all = "tls-cert = \"s.pem\"\ntls-key = \"s.key\"\ntls-ca = \"ca.pem\"";
    let own = format!("[controller]\nlisten = [\"tls:[::1]:6653\"]\n{all}");
    let text = with(all).replace("[controller]", &own);
    let switch = RunConfig::parse(&text).unwrap().switch;
    assert_eq!(switch.controllers, ["tls:[::1]:6653".parse().unwrap()], "its own controller");
    assert_eq!(switch.tls.unwrap().ca, Path::new("ca.pem"));
    let error_text = error(&with("tls-key = \"s.key\""));
    assert!(error_text.starts_with("lab.toml:6:"), "{error_text}");
    assert!(error_text.contains("all of tls-cert, tls-key and tls-ca"), "{error_text}");
    let error_text = error(&with(&format!("{all}\ntls-name = \"a b\"")));
    assert!(error_text.contains("expected a host name or address"), "{error_text}");
}

#[test]
fn places_to_listen_at_are_there_once_and_can_be() {
    let with = |listen: &str| {
        error(&GOOD.replace("[controller]", &format!("[controller]\nlisten = {listen}")))
    };
    let error_text = with("[]");
    assert!(error_text.starts_with("lab.toml:12:10: controller.listen: empty"), "{error_text}");
    let error_text = with("[\"tcp:[::1]:6653\", \"tcp:[::1]:6653\"]");
    assert!(error_text.starts_with("lab.toml:12:29: controller.listen: it is"), "{error_text}");
    let error_text = with("[\"tls:[::1]:6653\"]");
    assert!(error_text.starts_with("lab.toml:12:11: controller.listen: TLS"), "{error_text}");
    let error_text = with("[\"tcp:[::1]:6653\"]\ntls-key = \"c.key\"");
    assert!(error_text.starts_with("lab.toml:13:11: controller: TLS needs both"), "{error_text}");
    let error_text = with("[\"tcp:127.0.0.1:0\"]");
    assert!(error_text.starts_with("lab.toml:12:11: controller.listen: the port may not be 0"));
    let error_text = error(&GOOD.replace("tcp:127", "tls:127"));
    assert!(error_text.starts_with("lab.toml:8:11: switch.listen: TLS needs"), "{error_text}");
}

#[test]
fn where_others_reach_rest_is_a_url_and_for_a_shared_store() {
    let with = |lines: &str| GOOD.replace("[controller]", &format!("[controller]\n{lines}"));
    let told = error(&with("store = \"etcd://10.0.0.1:2379\"\nrest-url = \"foo\""));
    assert!(told.starts_with("lab.toml:13:12: controller.rest-url: 'foo' is no"), "{told}");
    let told = error(&with("rest-url = \"https://10.0.1.1:8653\""));
    assert!(told.starts_with("lab.toml:12:12: controller.rest-url: https://10.0.1.1"), "{told}");
    let told = error(&with("store = \"etcd://10.0.0.1:2379\"\nrelay-address = \"tcp:0.0.0.0\""));
    let wrong = "lab.toml:13:17: controller.relay-address: tcp:0.0.0.0:6653: others cannot";
    assert!(told.starts_with(wrong), "{told}");
    let told = error(&with("relay-address = \"tcp:10.0.1.1:6653\""));
    let wrong = "lab.toml:12:17: controller.relay-address: tcp:10.0.1.1:6653: a relay address is";
    assert!(told.starts_with(wrong), "{told}");
    assert!(told.contains("share a store in etcd"), "{told}");
    let good = with("store = \"etcd://10.0.0.1:2379\"\nrest-url = \"https://10.0.1.1:8653\"");
    let config = RunConfig::parse(&good).unwrap().controller.unwrap();
    let StoreConfig::Etcd(etcd) = config.store else { panic!("{:?}", config.store) };
    assert_eq!(etcd.rest_url.as_deref(), Some("https://10.0.1.1:8653"));
}

#[test]
fn files_that_nothing_would_use_are_told_of() {
    let with = |lines: &str| GOOD.replace("[controller]", &format!("[controller]\n{lines}"));
    let (rest, cert) = ("rest = \"[::1]:8653\"", "tls-cert = \"a.pem\"\ntls-key = \"a.key\"");
    let cases = [
        ("tokens = \"t.toml\"".to_owned(), "12:10: controller.tokens: ", "REST is off: give rest"),
        (format!("rest = \"off\"\ninsecure = true\n{cert}"), "13:12: controller.insecure: ", "off"),
        (format!("{cert}\nrest-ca = \"b.pem\""), "14:11: controller.rest-ca: ", "leave this out"),
        (cert.to_owned(), "12:12: controller.tls-cert: ", "REST is off and switches are not"),
        (format!("{rest}\n{cert}\ntls-ca = \"b.pem\""), "15:10: controller.tls-ca: ", "add tls:"),
    ];
    for (lines, place, words) in cases {
        let told = error(&with(&lines));
        assert!(told.starts_with(&format!("lab.toml:{place}nothing would use it")), "{told}");
        assert!(told.contains(words), "{told}");
    }
    let tls = "listen = [\"tls:[::1]:6653\"]\ntls-ca = \"b.pem\"";
    for lines in [
        format!("{rest}\ntokens = \"t.toml\"\n{cert}\nrest-ca = \"b.pem\"\ninsecure = true"),
        format!("{cert}\n{tls}"),
        "insecure = false".to_owned(),
    ] {
        RunConfig::parse(&with(&lines)).unwrap();
    }
}

#[test]
fn a_file_in_another_encoding_is_told_where() {
    let path = std::env::temp_dir().join(format!("tapswitch-config-{}", std::process::id()));
    std::fs::write(&path, b"bridge = \"lab0\"\n# f\xfcr\n").unwrap();
    let error_text = RunConfig::read(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error_text.contains(":2:4: not UTF-8"), "{error_text}");
}

#[test]
fn contradictions_are_found_before_anything_runs() {
    let error_text = error(&GOOD.replace("2=netdev", "1=netdev"));
    assert!(
        error_text.contains("number 1 is already used by 1=tap:web0,netns=web"),
        "{error_text}"
    );
    let error_text = error(&GOOD.replace("monitor = \"2\"", "monitor = \"7\""));
    assert!(error_text.starts_with("lab.toml:15:1: policy 'web'"), "{error_text}");
    assert!(error_text.contains("monitor '7' does not exist; the ports are 1 (web0), 2 (eth1)"));
    let one_of = |ports: &str| GOOD.replace("\"2\"", &format!("\"one-of:{ports}\""));
    let error_text = error(&one_of("2+8"));
    assert!(error_text.starts_with("lab.toml:15:1: policy 'web': monitor '8'"), "{error_text}");
    assert!(RunConfig::parse(&one_of("1+2")).is_ok());
    let error_text = error(&GOOD.replace("[controller]", ""));
    assert!(error_text.contains("add a [controller] section"), "{error_text}");
}
