//! The modes: what each does to the tags of received and sent frames.

use tapswitch_wire::{EtherType, MacAddr, Tag};

use super::{Edit, ServiceMap, Vid, VidSet};

/// The VLAN mode of a port. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// One C-VLAN, untagged outside; frames with further tags do not pass.
    Access(Vid),
    /// Several C-VLANs, tagged.
    Trunk(Trunk),
    /// One S-VLAN around all frames of a customer.
    Tunnel(Tunnel),
    /// S-VLANs around the C-VLANs of a customer, by a map.
    Selective(Selective),
    /// S-VLANs, tagged.
    Provider(Provider),
}

/// Several C-VLANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trunk {
    /// The VLANs.
    pub vlans: VidSet,
    /// The VLAN that is untagged outside; always a member.
    pub native: Option<Vid>,
}

/// One S-VLAN around all frames of a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The S-VLAN.
    pub service: Vid,
    /// The C-VLANs that pass; if `None`, all frames, tagged or not.
    pub customers: Option<VidSet>,
}

/// S-VLANs around the C-VLANs of a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selective {
    /// C-VLANs to S-VLANs.
    pub map: ServiceMap,
    /// The S-VLAN of untagged frames; if `None`, they do not pass.
    pub untagged: Option<Vid>,
}

/// S-VLANs as a neighbour tags them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    vlans: VidSet,
    tpid: EtherType,
    translations: Translations,
}

impl PortMode {
    /// True if untagged frames to this address are link-local, and in no VLAN.
    #[inline]
    pub(crate) fn keeps_on_link(&self, to: MacAddr) -> bool {
        match self {
            Self::Access(_) | Self::Trunk(_) => to.is_bridge_reserved(),
            Self::Tunnel(_) | Self::Selective(_) | Self::Provider(_) => {
                to.is_provider_bridge_reserved()
            }
        }
    }

    /// True if frames with foreign S-tags pass.
    pub const fn passes_service_tags(&self) -> bool {
        matches!(self, Self::Provider(_))
    }

    /// The edit that converts a received frame with this outermost tag to the inner form. `None` if
    /// the port does not accept it.
    #[inline]
    pub fn admit(&self, outer: Option<Tag>) -> Option<Edit> {
        match self {
            Self::Access(vlan) => untagged_into(*vlan, outer),
            Self::Trunk(trunk) => trunk.admit(outer),
            Self::Tunnel(tunnel) => tunnel.admit(outer),
            Self::Selective(selective) => selective.admit(outer),
            Self::Provider(provider) => provider.admit(outer),
        }
    }

    /// The edit that gives a frame with these two outermost tags its outer form. `None` if the port
    /// is not a member of its VLAN, or does not send such stacks. The edit pops and sets, and never
    /// pushes.
    #[inline]
    pub fn emit(&self, outer: Option<Tag>, inner: Option<Tag>) -> Option<Edit> {
        let outer = outer?;
        match self {
            Self::Access(vlan) => untagged_from(*vlan, outer, inner),
            Self::Trunk(trunk) => trunk.emit(outer, inner),
            Self::Tunnel(tunnel) => tunnel.emit(outer, inner),
            Self::Selective(selective) => selective.emit(outer, inner),
            Self::Provider(provider) => provider.emit(outer),
        }
    }
}

impl Trunk {
    #[inline]
    fn admit(&self, outer: Option<Tag>) -> Option<Edit> {
        match outer {
            Some(tag) if tag.tpid() == EtherType::VLAN && tag.vid() != 0 => {
                self.is_member(tag.vid()).then_some(Edit::NONE)
            }
            outer => untagged_into(self.native?, outer),
        }
    }

    /// A frame of the native VLAN with another tag inside keeps its tag: without it, the neighbour
    /// would take it for a frame of the inner VLAN.
    #[inline]
    fn emit(&self, outer: Tag, inner: Option<Tag>) -> Option<Edit> {
        if outer.tpid() != EtherType::VLAN || !self.is_member(outer.vid()) {
            return None;
        }
        let is_untagged = self.is_native(outer.vid()) && inner.is_none();
        Some(if is_untagged { Edit::pop() } else { Edit::NONE })
    }

    #[inline]
    fn is_member(&self, number: u16) -> bool {
        self.vlans.contains(number) || self.is_native(number)
    }

    #[inline]
    fn is_native(&self, number: u16) -> bool {
        self.native.is_some_and(|native| native.number() == number)
    }
}

impl Tunnel {
    #[inline]
    fn admit(&self, outer: Option<Tag>) -> Option<Edit> {
        self.takes(outer).then(|| Edit::push(service_tag(self.service, outer)))
    }

    #[inline]
    fn emit(&self, outer: Tag, inner: Option<Tag>) -> Option<Edit> {
        let is_ours = is_in(outer, EtherType::SERVICE_VLAN, self.service) && self.takes(inner);
        is_ours.then_some(Edit::pop())
    }

    /// True if a frame with this outermost tag of the customer passes.
    #[inline]
    fn takes(&self, customer: Option<Tag>) -> bool {
        let Some(allowed) = &self.customers else { return true };
        customer_vid(customer).is_some_and(|number| allowed.contains(number))
    }
}

impl Selective {
    #[inline]
    fn admit(&self, outer: Option<Tag>) -> Option<Edit> {
        match outer {
            Some(tag) if tag.tpid() == EtherType::VLAN && tag.vid() != 0 => {
                let (service, inner) = self.map.inward(tag.vid())?;
                let set = (inner != tag.vid()).then(|| with_vid(tag, inner));
                let push = Some(service_tag(service, outer));
                Some(Edit { pop: false, set, push })
            }
            // A priority tag stays inside: what is behind it is not subject to the map.
            None => Some(Edit::push(service_tag(self.untagged?, None))),
            Some(tag) => {
                let is_priority = tag.tpid() == EtherType::VLAN;
                is_priority.then_some(Edit::push(service_tag(self.untagged?, outer)))
            }
        }
    }

    #[inline]
    fn emit(&self, outer: Tag, inner: Option<Tag>) -> Option<Edit> {
        if outer.tpid() != EtherType::SERVICE_VLAN {
            return None;
        }
        let Some(tag) = inner.filter(|tag| customer_vid(Some(*tag)).is_some_and(|it| it != 0))
        else {
            let is_untagged = inner.is_none_or(|tag| tag.tpid() == EtherType::VLAN);
            let is_ours = self.untagged.is_some_and(|vlan| vlan.number() == outer.vid());
            return (is_untagged && is_ours).then_some(Edit::pop());
        };
        let customer = self.map.outward(outer.vid(), tag.vid())?;
        let set = (customer != tag.vid()).then(|| with_vid(tag, customer));
        Some(Edit { set, ..Edit::pop() })
    }
}

impl Provider {
    /// The S-VLANs `vlans`, by the neighbour's identifiers, in tags with `tpid`. If `vlans` is
    /// `None`: all, except identifiers that the switch uses for a translated one.
    ///
    /// # Errors
    /// [`ProviderError`] if the list and the translations contradict each other.
    pub fn new(
        vlans: Option<VidSet>,
        tpid: EtherType,
        translations: Translations,
    ) -> Result<Self, ProviderError> {
        let pairs = translations.pairs();
        let is_outside = |vid: Vid| pairs.iter().any(|&(outside, _)| outside == vid);
        let shadowed = pairs.iter().map(|&(_, inside)| inside).filter(|&it| !is_outside(it));
        let Some(vlans) = vlans else {
            let mut vlans = VidSet::all();
            shadowed.for_each(|vid| vlans.remove(vid));
            return Ok(Self { vlans, tpid, translations });
        };
        let unlisted = pairs.iter().find(|(outside, _)| !vlans.contains(outside.number()));
        if let Some(&(outside, _)) = unlisted {
            return Err(ProviderError::NotListed(outside));
        }
        if let Some(vid) = shadowed.clone().find(|vid| vlans.contains(vid.number())) {
            return Err(ProviderError::Shadowed(vid));
        }
        Ok(Self { vlans, tpid, translations })
    }

    /// The S-VLANs that pass, by the neighbour's identifiers.
    pub fn vlans(&self) -> &VidSet {
        &self.vlans
    }

    /// TPID of the neighbour's tags.
    pub fn tpid(&self) -> EtherType {
        self.tpid
    }

    /// Translated identifiers.
    pub fn translations(&self) -> &Translations {
        &self.translations
    }

    #[inline]
    fn admit(&self, outer: Option<Tag>) -> Option<Edit> {
        let tag = outer.filter(|tag| tag.tpid() == self.tpid)?;
        let is_member = self.vlans.contains(tag.vid());
        is_member.then(|| renamed(tag, EtherType::SERVICE_VLAN, self.translations.inward(tag)))
    }

    #[inline]
    fn emit(&self, outer: Tag) -> Option<Edit> {
        let outside = self.translations.outward(outer)?;
        let is_member = outer.tpid() == EtherType::SERVICE_VLAN && self.vlans.contains(outside);
        is_member.then(|| renamed(outer, self.tpid, outside))
    }
}

/// The list of S-VLANs and their translations contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// An S-VLAN is translated, but does not pass.
    #[error("S-VLAN {0} is translated, but is not a VLAN of the port; add it to vlans=")]
    NotListed(Vid),
    /// Two S-VLANs of the neighbour would be one inside.
    #[error(
        "S-VLAN {0} would be both an untranslated S-VLAN of the neighbour and the target of a \
         translation"
    )]
    Shadowed(Vid),
}

/// Pairs of identifiers of one S-VLAN: the neighbour's and the switch's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translations {
    by_outside: Box<[(Vid, Vid)]>,
    by_inside: Box<[(Vid, Vid)]>,
}

impl Translations {
    /// These pairs, the neighbour's identifier first.
    ///
    /// # Errors
    /// [`TranslationError`] if an identifier occurs twice on one side.
    pub fn new(mut pairs: Vec<(Vid, Vid)>) -> Result<Self, TranslationError> {
        let twice = |pairs: &[(Vid, Vid)], of: fn(&(Vid, Vid)) -> Vid| {
            pairs.windows(2).find(|it| of(&it[0]) == of(&it[1])).map(|it| of(&it[0]))
        };
        pairs.sort_by_key(|pair| pair.0);
        if let Some(vid) = twice(&pairs, |pair| pair.0) {
            return Err(TranslationError { vid, side: "outside" });
        }
        let by_outside = pairs.clone().into();
        pairs.sort_by_key(|pair| pair.1);
        if let Some(vid) = twice(&pairs, |pair| pair.1) {
            return Err(TranslationError { vid, side: "inside" });
        }
        Ok(Self { by_outside, by_inside: pairs.into() })
    }

    /// The pairs, ordered by the neighbour's identifier.
    pub fn pairs(&self) -> &[(Vid, Vid)] {
        &self.by_outside
    }

    /// The switch's identifier for the neighbour's.
    fn inward(&self, tag: Tag) -> u16 {
        let found = self.by_outside.binary_search_by_key(&tag.vid(), |pair| pair.0.number());
        found.map_or(tag.vid(), |at| self.by_outside[at].1.number())
    }

    /// The neighbour's identifier for the switch's; `None` if the neighbour uses that number for
    /// another S-VLAN.
    fn outward(&self, tag: Tag) -> Option<u16> {
        let vid = tag.vid();
        if let Ok(at) = self.by_inside.binary_search_by_key(&vid, |pair| pair.1.number()) {
            return Some(self.by_inside[at].0.number());
        }
        let taken = self.by_outside.binary_search_by_key(&vid, |pair| pair.0.number());
        taken.is_err().then_some(vid)
    }
}

/// An identifier is translated twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("S-VLAN {vid} is given twice {side}; a translation must be reversible")]
pub struct TranslationError {
    vid: Vid,
    side: &'static str,
}

/// Accepts untagged and priority-tagged frames into the C-VLAN `vlan`.
#[inline]
fn untagged_into(vlan: Vid, outer: Option<Tag>) -> Option<Edit> {
    let tag = |tci| with_vid(Tag::new(EtherType::VLAN, tci), vlan.number());
    match outer {
        None => Some(Edit::push(tag(0))),
        Some(outer) if outer.tpid() == EtherType::VLAN && outer.vid() == 0 => {
            Some(Edit::set(tag(outer.tci())))
        }
        Some(_) => None,
    }
}

/// Sends frames of the C-VLAN `vlan` without their tag. Frames with another tag inside are not
/// sent: the neighbour would take them for frames of the inner VLAN. A priority tag names no VLAN.
#[inline]
fn untagged_from(vlan: Vid, outer: Tag, inner: Option<Tag>) -> Option<Edit> {
    let is_untagged = inner.is_none_or(|tag| customer_vid(Some(tag)) == Some(0));
    (is_untagged && is_in(outer, EtherType::VLAN, vlan)).then_some(Edit::pop())
}

/// An S-tag around `customer`, with its priority.
#[inline]
fn service_tag(service: Vid, customer: Option<Tag>) -> Tag {
    let tci = customer.map_or(0, Tag::tci);
    with_vid(Tag::new(EtherType::SERVICE_VLAN, tci), service.number())
}

#[inline]
fn with_vid(tag: Tag, number: u16) -> Tag {
    Tag::new(tag.tpid(), tag.tci() & !Tag::VID_MASK | number)
}

/// Sets TPID and identifier of `tag`.
#[inline]
fn renamed(tag: Tag, tpid: EtherType, number: u16) -> Edit {
    let new = with_vid(Tag::new(tpid, tag.tci()), number);
    if new == tag { Edit::NONE } else { Edit::set(new) }
}

#[inline]
fn is_in(tag: Tag, tpid: EtherType, vlan: Vid) -> bool {
    tag.tpid() == tpid && tag.vid() == vlan.number()
}

/// The identifier of a C-tag.
#[inline]
fn customer_vid(tag: Option<Tag>) -> Option<u16> {
    tag.filter(|tag| tag.tpid() == EtherType::VLAN).map(Tag::vid)
}

#[cfg(test)]
mod tests;
