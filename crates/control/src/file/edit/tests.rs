use p4runtime::LimitedRole;
use p4switch::Access;

use super::*;

const FILE: &str = r#"# The switch of rack 7.
# Ask the network team before you change it.

[daemon] # restart after changes
workers = "0" # beside the NIC's interrupts

# --- tenants ---

# Tenant A.
[[bridge]]
params = { ageing = 60 } # short-lived containers
name = "br0"

# The database.
[[bridge.port]]
type = "memif"
name = "db" # do not rename
path = "/tmp/edit-db.sock"
mtu = 9000 # jumbo frames
vlan = "trunk:20-29,10"
admin = "up"

# --- guests ---

# Leaves next month.
[[bridge.port]]
name = "old"
type = "tap"

# Tenant B.
[[bridge]]
name = "br1"
# The end.
"#;

fn read(text: &str) -> Config {
    parse(text, Path::new("f.toml"), Depth::Form).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns `text` after an edit. The text must not be regenerated.
fn edited(text: &str, change: impl FnOnce(&mut Config)) -> String {
    let mut wanted = read(text);
    change(&mut wanted);
    let edited = edit(text, &wanted);
    assert_eq!(edited.rewritten, None);
    assert_eq!(diff::between(&read(&edited.text), &wanted), []);
    edited.text
}

/// Returns `FILE` with pieces replaced.
fn with(pieces: &[(&str, &str)]) -> String {
    pieces.iter().fold(FILE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn an_equal_configuration_leaves_the_text_unchanged() {
    assert_eq!(edited(FILE, |_| {}), FILE);
}

#[test]
fn a_changed_value_keeps_its_place_and_comment() {
    let found = edited(FILE, |config| {
        config.bridges[0].ports[0].set_mtu(1400);
        config.bridges[0].logic.params = vec![("ageing".into(), "7".into())];
        config.bridges[1].logic.name = "hub".into();
    });
    let expected = with(&[
        ("mtu = 9000 #", "mtu = 1400 #"),
        ("ageing = 60 }", "ageing = \"7\" }"),
        ("name = \"br1\"\n", "name = \"br1\"\nlogic = \"hub\"\n"),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_key_is_removed_alone() {
    let found = edited(FILE, |config| {
        config.bridges[0].ports[0].set_mtu(0);
        config.bridges[0].logic.params.clear();
    });
    let expected = with(&[
        ("mtu = 9000 # jumbo frames\n", ""),
        ("params = { ageing = 60 } # short-lived containers\n", ""),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_port_is_removed_with_its_own_comment_only() {
    let found = edited(FILE, |config| drop(config.bridges[0].ports.pop()));
    let expected = with(&[("# Leaves next month.\n[[bridge.port]]\nname = \"old\"\ntype = \"tap\"\n\n", "")]);
    assert_eq!(found, expected);
    let found = edited(FILE, |config| drop(config.bridges.remove(0)));
    assert!(
        found.starts_with("# The switch of rack 7.\n") && found.contains("# --- tenants ---\n"),
        "{found}"
    );
    assert!(!found.contains("Tenant A") && found.contains("# Tenant B.\n[[bridge]]"), "{found}");
    let found = edited(FILE, |config| config.bridges.clear());
    assert!(found.contains("# --- tenants ---\n") && found.ends_with("# The end.\n"), "{found}");
}

#[test]
fn new_objects_follow_their_siblings() {
    let more = read(
        "[sflow]\ncollectors = [\"192.0.2.9\"]\n[[bridge]]\nname = \"new\"\nlogic = \"static\"\nparams = { a = \"b\" }\n\
         [[bridge.port]]\nname = \"x\"\ntype = \"tap\"\n[[bridge.station]]\nmac = \"02:00:00:00:00:01\"\nport = \"x\"\n",
    );
    let other = read("[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"y\"\ntype = \"tap\"\n");
    let found = edited(FILE, |config| {
        config.bridges[0].ports.extend(other.bridges[0].ports.clone());
        config.bridges.extend(more.bridges.clone());
        config.sflow = more.sflow.clone();
    });
    let port = |name: &str| format!("\n[[bridge.port]]\nname = \"{name}\"\ntype = \"tap\"\n");
    let expected = with(&[
        ("name = \"old\"\ntype = \"tap\"\n", &format!("name = \"old\"\ntype = \"tap\"\n{}", port("y"))),
        (
            "# The end.\n",
            &format!(
                "# The end.\n\n[[bridge]]\nname = \"new\"\nlogic = \"static\"\nparams = {{ a = \"b\" }}\n{}\n\
                 [[bridge.station]]\nmac = \"02:00:00:00:00:01\"\nport = \"x\"\n\n[sflow]\ncollectors = [\"192.0.2.9:6343\"]\n",
                port("x")
            ),
        ),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_table_of_a_bridge_comes_and_goes() {
    let set = |config: &mut Config| config.bridges[0].openflow.probe = 7;
    let text = edited(FILE, set);
    assert!(text.contains("\n[bridge.openflow]\nprobe = 7\n"), "{text}");
    let changed = edited(&text, |config| config.bridges[0].openflow.probe = 8);
    assert_eq!(changed, text.replace("probe = 7", "probe = 8"));
    let gone = edited(&text, |config| config.bridges[0].openflow = Default::default());
    assert!(!gone.contains("openflow"), "{gone}");
    let inline = edited("bridge = [{ name = \"b\" }]\n", set);
    assert!(inline.contains("openflow = { probe = 7 }"), "{inline}");
}

#[test]
fn roles_of_p4_come_and_go() {
    let role = |name: &str, most| {
        let access = Access { role: name.into(), max_entries: most, ..Access::default() };
        LimitedRole { access, ..LimitedRole::default() }
    };
    let text = edited(FILE, |config| drop(config.bridges[0].p4.roles.insert("a".into(), role("a", None))));
    assert!(text.contains("\n[[bridge.p4.role]]\nname = \"a\"\n"), "{text}");
    let text = text.replace("name = \"a\"\n", "name = \"a\" # The first.\n");
    let more = edited(&text, |config| {
        let roles = &mut config.bridges[0].p4.roles;
        roles.insert("a".into(), role("a", Some(7)));
        roles.insert("b".into(), role("b", None));
    });
    let expected = "name = \"a\" # The first.\nmax-entries = 7\n\n[[bridge.p4.role]]\nname = \"b\"\n";
    assert!(more.contains(expected), "{more}");
    let gone = edited(&more, |config| config.bridges[0].p4 = Default::default());
    assert!(!gone.contains("role"), "{gone}");
}

#[test]
fn a_file_of_comments_keeps_them_at_the_top() {
    let comments = "# Configuration of mswitch.\n#\n# [[bridge]]\n";
    let found = edited(comments, |config| config.bridges = read("[[bridge]]\nname = \"b\"\n").bridges);
    assert_eq!(found, format!("{comments}\n[[bridge]]\nname = \"b\"\n"));
}

#[test]
fn other_notations_are_kept() {
    let inline = "# all in one\nbridge = [\n  { name = \"b\", port = [{ name = \"p\", type = \"tap\" }] }, # first\n]\n";
    let more = read(
        "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"q\"\ntype = \"tap\"\nvlan = \"access:7\"\n",
    );
    let found = edited(inline, |config| config.bridges[0].ports.extend(more.bridges[0].ports.clone()));
    assert!(found.starts_with("# all in one\nbridge = [\n  { name = \"b\", port = [{ name"), "{found}");
    assert!(found.ends_with("# first\n]\n"), "{found}");

    let dotted = "[[bridge]]\nname = \"b\"\nparams.ageing = 5 # dotted\n[bridge.params]\n";
    assert!(parse(dotted, Path::new(""), Depth::Form).is_err(), "only one notation at a time");
    let dotted = "[[bridge]]\nname = \"b\"\nparams.ageing = 5 # dotted\n";
    let set = |config: &mut Config| config.bridges[0].logic.params[0].1 = "6".into();
    assert_eq!(edited(dotted, set), dotted.replace('5', "\"6\""));
    let header = "[[bridge]]\nname = \"b\"\n\n# why\n[bridge.params]\nageing = 5\n";
    assert_eq!(edited(header, set), header.replace('5', "\"6\""));
}

#[test]
fn line_endings_are_kept() {
    let text = "# one\r\n[[bridge]]\r\nname = \"b\"\r\n";
    let hub = |config: &mut Config| config.bridges[0].logic.name = "hub".into();
    assert_eq!(edited(text, hub), format!("{text}logic = \"hub\"\r\n"));
}

#[test]
fn indentation_is_kept() {
    let text = "[[bridge]]\nname = \"a\"\n\n  # Uplink.\n  [[bridge.port]]\n    # its name\n    name = \"p\"\n    type = \"tap\"\n\n\
                [[bridge]]\n  name = \"b\"\n";
    let port = |name: &str| format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"tap\"\n");
    let more =
        read(&format!("[[bridge]]\nname = \"b\"\n{}[[bridge]]\nname = \"c\"\n{}", port("q"), port("r")));
    let found = edited(text, |config| {
        config.bridges[0].ports[0].set_mtu(1400);
        config.bridges[1].ports.extend(more.bridges[0].ports.clone());
        config.bridges.push(more.bridges[1].clone());
    });
    let port = |name: &str| format!("\n  [[bridge.port]]\n    name = \"{name}\"\n    type = \"tap\"\n");
    let expected = text.replace("    type = \"tap\"\n", "    type = \"tap\"\n    mtu = 1400\n");
    assert_eq!(found, format!("{expected}{}\n[[bridge]]\n  name = \"c\"\n{}", port("q"), port("r")));
}

#[test]
fn a_former_name_is_kept_until_its_value_changes() {
    let text = "[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p\"\ntype = \"memif\"\nsocket = \"/tmp/e.sock\"\n";
    assert_eq!(
        edited(text, |config| config.bridges[0].ports[0].set_mtu(1400)),
        format!("{text}mtu = 1400\n")
    );
    let other = read(&text.replace("e.sock", "f.sock"));
    assert_eq!(edited(text, |config| *config = other), text.replace("socket = \"/tmp/e", "path = \"/tmp/f"));
}

#[test]
fn a_text_with_a_mistake_is_regenerated() {
    let wanted = read("[[bridge]]\nname = \"b\"\n");
    for (text, reason) in [
        (
            "# hello\n[[bridge]]\nnam = 1\n",
            "line 2 has a mistake: key `name` is missing; expected the bridge's name",
        ),
        ("[[bridge]]\nname = b\n", "line 2 has a mistake: `b`: texts need quotes: write `name = \"b\"`"),
    ] {
        let found = edit(text, &wanted);
        assert_eq!(found.text, "[[bridge]]\nname = \"b\"\n");
        assert_eq!(found.rewritten.as_deref(), Some(reason));
    }
}
