//! What a name means: all of a control-plane name, or its end.

/// Finds an action: by name as [`find`] does, without the number behind those that are listed with arguments.
pub(super) fn find_action<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, String> {
    find("action", wanted, names.map(|name| name.split_once('#').map_or(name, |(name, _)| name)))
}

/// Finds a name: the one that is equal, else the only one that ends in it behind a dot, else the only one that ends in
/// it, else the only one that does so with `_` for `.`.
///
/// # Errors
/// There is none, or several.
pub(super) fn find<'n>(
    kind: &str,
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, String> {
    let at_dot = |name: &str| name.strip_suffix(wanted).is_some_and(|front| front.ends_with('.'));
    let with_underscores = |name: &str| name.replace('.', "_").ends_with(wanted);
    first_that_decides(
        kind,
        wanted,
        names,
        &[&|name| name == wanted, &at_dot, &|name| name.ends_with(wanted), &with_underscores],
    )
}

/// Finds a key of a table: by name as [`find`] does, where `x$0` means `x[0]` and a header's name its validity.
///
/// # Errors
/// There is none, or several.
pub(super) fn find_key<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<usize, String> {
    let wanted = &with_index(wanted);
    let validity = format!("{}.$valid$", wanted.strip_suffix(".valid").unwrap_or(wanted));
    let ends_in = |name: &str, end: &str| name.strip_suffix(end).is_some_and(|front| front.ends_with('.'));
    // The generated names of the eBPF back ends: `key.field0`, `key.headers_ipv4_srcAddr`.
    let generated = wanted.strip_prefix("key.");
    let number = generated.and_then(|rest| rest.strip_prefix("field")?.parse().ok());
    if let Some(number) = number.filter(|number: &usize| *number < names.clone().count()) {
        return Ok(number);
    }
    let with_underscores = |name: &str| generated.is_some_and(|rest| name.replace('.', "_").ends_with(rest));
    first_that_decides(
        "key",
        wanted,
        names,
        &[
            &|name| name == wanted,
            &|name| name == validity,
            &|name| ends_in(name, wanted),
            &|name| ends_in(name, &validity),
            &|name| wanted == "valid" && name.ends_with("$valid$"),
            &with_underscores,
        ],
    )
}

/// `x$0.f` as `x[0].f`.
fn with_index(name: &str) -> String {
    let indexed = |part: &str| match part.split_once('$') {
        Some((stack, index)) if !index.is_empty() && index.chars().all(|c| c.is_ascii_digit()) => {
            format!("{stack}[{index}]")
        }
        _ => part.to_owned(),
    };
    name.split('.').map(indexed).collect::<Vec<_>>().join(".")
}

/// The name that the first criterion chooses that chooses any.
fn first_that_decides<'n>(
    kind: &str,
    wanted: &str,
    names: impl Iterator<Item = &'n str> + Clone,
    criteria: &[&dyn Fn(&str) -> bool],
) -> Result<usize, String> {
    for criterion in criteria {
        let mut found = names.clone().enumerate().filter(|(_, name)| criterion(name));
        match (found.next(), found.next()) {
            (Some((index, _)), None) => return Ok(index),
            (Some((_, one)), Some((_, other))) => {
                return Err(format!("{kind} {wanted} may be {one} or {other}: write more of the name"));
            }
            (None, _) => {}
        }
    }
    let known: Vec<_> = names.take(10).collect();
    match known.is_empty() {
        true => Err(format!("unknown {kind} {wanted}: there are none")),
        false => Err(format!("unknown {kind} {wanted} (known: {})", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_is_enough() {
        let names = ["ingress.t", "egress.t", "ingress.pre_t", "ingress.acl", "t2"];
        let find = |wanted| find("table", wanted, names.iter().copied());
        assert_eq!(find("egress.t"), Ok(1));
        assert_eq!(find("acl"), Ok(3));
        assert_eq!(find("re_t"), Ok(2));
        assert_eq!(find("ingress_acl"), Ok(3));
        assert_eq!(find("t"), Err("table t may be ingress.t or egress.t: write more of the name".into()));
        let known = "ingress.t, egress.t, ingress.pre_t, ingress.acl, t2";
        assert_eq!(find("nat"), Err(format!("unknown table nat (known: {known})")));
    }

    #[test]
    fn keys_have_short_forms() {
        let names =
            ["hdr.data.f1", "hdr.extra[0].h", "hdr.vlan.$valid$", "meta.x", "standard_metadata.mcast_grp"];
        let find = |wanted| find_key(wanted, names.iter().copied());
        assert_eq!(find("data.f1"), Ok(0));
        assert_eq!(find("extra$0.h"), Ok(1));
        assert_eq!(
            (find("vlan"), find("vlan.valid"), find("valid"), find("hdr.vlan")),
            (Ok(2), Ok(2), Ok(2), Ok(2))
        );
        assert_eq!(find("mcast_grp"), Ok(4));
        assert_eq!((find("key.field3"), find("key.data_f1")), (Ok(3), Ok(0)));
        assert!(find("f").unwrap_err().starts_with("unknown key f (known: hdr.data.f1,"));
    }
}
