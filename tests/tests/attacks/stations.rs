//! Packets from non-existent stations.

attacks! {
    /// Random addresses.
    random: "stations";
    /// Ascending addresses.
    rising: "stations-rising";
    /// Random addresses in random VLANs.
    tagged: "stations-tagged";
    /// Group addresses.
    groups: "stations-groups";
}
