//! Stations that do not exist.

attacks! {
    /// Random addresses.
    random: "stations";
    /// One after another.
    rising: "stations-rising";
    /// Random addresses in random VLANs.
    tagged: "stations-tagged";
    /// Groups' addresses.
    groups: "stations-groups";
}
