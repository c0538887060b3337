"""Words that tell whether a dot ends a sentence: what may begin the next one, and which short forms never end one.

Only what the eight best-known languages need. sentencex knows the abbreviations of many more; these lists say what
it cannot know: whether a short form *can* stand at the end of a sentence.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "HOURS",
    "LAST",
    "MONTHS_FOLLOW",
    "NEVER_LAST",
    "NOT_AFTER_HOURS",
    "NUMBERED",
    "PARTICLES",
    "SAID",
    "STARTERS",
    "WORDS_TOO",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STARTERS: Final[dict[str, frozenset[str]]] = {
    "en": _words(
        """
        the a an it it's its he he's she she's we we're we've we'll they they're you you're you'll this that that's
        these those there there's here here's but and so then now if when while what what's who where why how is are
        was were do does did has have had can could would will shall should may might must my your his her our their
        in on at for from with to by after before as also however please yes no not let let's maybe perhaps later
        today tomorrow yesterday all some many most each every both one nobody everyone everybody nothing something
        because since until although though once first next finally still yet just only well sure thanks don't
        otherwise instead therefore meanwhile during under over between without within i i'm i'd i'll i've another
        """
    ),
    "de": _words(
        """
        der die das ein eine einen einem einer er sie es wir ihr ich du man dies diese dieser dieses diesen dann
        danach dort hier da aber und oder doch denn wenn als wie was wer wo warum wann ist sind war waren hat haben
        hatte kann können könnten möchten möchte soll sollen wird werden bitte ja nein nicht auch noch nun jetzt heute
        gestern im in am an auf aus bei mit nach von vom vor zu zum zur für um über unter seit alles mein meine ihre ihren
        unser unsere alle viele einige leider vielleicht später mehr dazu damit dabei daher deshalb darum so nur falls
        sobald bevor nachdem obwohl weil trotzdem außerdem niemand jeder jede jedes etwas nichts gut gerne natürlich
        jedoch zuerst zuletzt schließlich weder dafür davon dagegen inzwischen manche beide
        """
    ),
    "fr": _words(
        """
        le la les un une des il elle on nous vous ils elles je tu ce cela ça cette ces cet mais et ou puis alors donc
        si quand comme où qui que quel quelle quels quelles est sont était avez avons pouvez voulez peut dans en sur
        pour par avec sans après avant à au aux du chez sous vers mon ma mes votre vos notre nos leur leurs son sa ses
        tout tous toute toutes très bien oui non merci peut-être aujourd'hui demain hier ensuite enfin l j d c s n qu
        m'y t personne rien chaque plusieurs certains aussi ainsi cependant pourtant parce pourquoi combien comment
        voici voilà il-y-a est-ce y-a-t-il lui eux moi toi depuis pendant lorsque lorsqu puisque puisqu
        """
    ),
    "es": _words(
        """
        el la los las un una unos unas yo tú él ella nosotros ellos ellas usted ustedes este esta esto estos estas ese
        esa eso esos esas aquel aquella pero y o e u si cuando como donde qué quién es son era está están hay ha han
        puede pueden quiere tiene en con por para desde sin sobre tras después antes luego entonces ahora hoy mañana
        ayer mi mis su sus nuestro nuestra todo todos toda todas muy más sí no tal también además gracias ya al se le
        lo me te nos les nadie nada algo alguien cada varios muchos algunas algunos otro otra aunque porque aquí allí
        así según durante entre hasta
        """
    ),
    "it": _words(
        """
        il lo la i gli le un uno una io tu lui lei noi voi loro questo questa questi queste quello quella ma e o se
        quando come dove che chi è sono era ha hanno può in con per da su tra fra dopo prima poi allora ora oggi
        domani ieri mio suo tutto tutti molto più sì no anche grazie già non
        """
    ),
    "pt": _words(
        """
        o a os as um uma uns umas eu tu ele ela nós eles elas você vocês este esta isto esse essa isso aquele mas e ou
        se quando como onde que quem é são era está estão há pode em no na nos nas com por para de do da depois antes
        então agora hoje amanhã ontem meu seu sua tudo todos muito mais sim não também obrigado já
        """
    ),
    "nl": _words(
        """
        de het een hij zij ze wij we jij je u ik dit dat deze die maar en of als wanneer wat wie waar waarom hoe is
        zijn was waren heeft hebben kan kunnen wil wilt in op aan voor van met naar bij uit over na dan toen nu
        vandaag morgen gisteren mijn uw alle veel meer ja nee niet ook nog er hier daar
        """
    ),
}
"""What the next sentence may well begin with, and what a name or a noun does not; in small letters."""

PARTICLES: Final = _words("le la les de du des el al der van von da do dos di")
"""Words that names begin with, so that "J. Le Goff" is one name."""

NEVER_LAST: Final[dict[str, frozenset[str]]] = {
    "en": _words(
        """
        mr mrs ms mx dr prof st rev hon gen col capt cmdr lt sgt maj pres gov sen rep messrs mt ft e.g i.e eg ie vs cf
        viz fig figs vol pp approx ca al dept
        """
    ),
    "de": _words(
        """
        hr hrn fr frl dr prof dipl ing st z.b zb z.t d.h dh bzw ca vgl evtl ggf inkl exkl max min mind nr abs art kap
        bd s.o s.u u.u h.c sog geb gest v.a i.d.r bspw zzgl abzgl str tel allg jap engl lat z d u
        """
    ),
    "fr": _words(
        "m mm mme mmes mlle mlles dr pr me mgr st ste c.-à-d cad p.ex ex cf env av bd art fig chap vol no tél"
    ),
    "es": _words(
        """
        sr sra srta sres dr dra prof profa d dña ing lic arq ud uds vd vds p.ej ej pág págs núm núms art av avda cap
        fig vol tel aprox gral sto sta c
        """
    ),
    "hi": _words("डॉ श्री श्रीमती प्रो कु पं मो रु सं क्र ई.पू बी.ए एम.ए"),
    "ar": _words("د أ م ص ت ج ق.م هـ أ.د م.د ه"),
    "it": _words("sig sigg dott prof avv ing on dr ecc.mo p.es es pag art fig n tel"),
    "pt": _words("sr sra srta dr dra prof profa eng av pág p.ex ex núm fig art tel"),
    "nl": _words("dhr mevr mw dr prof ir ing bijv d.w.z nr blz fig art ca m.b.t tel"),
}
"""Short forms that always have something after them, without their last dot, in small letters."""

SAID: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "en": (_words("i"), _words("asked said replied answered cried shouted whispered thought added called")),
    "hi": (_words("उसने उन्होंने मैंने हमने"), _words("कहा पूछा बोला बताया सोचा")),
    "ar": (_words("قال قالت سأل سألت أجاب أجابت صاح صاحت هتف هتفت"), frozenset()),
}
"""Who said a quotation, behind it: the first word, and the second one if there is a choice."""

HOURS: Final = _words("a.m p.m am pm")
NOT_AFTER_HOURS: Final = _words(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august
    september october november december jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    eastern central mountain pacific est edt cst cdt mst mdt pst pdt gmt utc bst cet cest et pt ct
    """
)
"""What follows an hour within a sentence, though it has a capital; whatever else has one begins a sentence."""

LAST: Final = _words("etc usw usf ecc enz الخ إلخ")
"""Short forms that close a list: a capital after one begins a sentence."""

WORDS_TOO: Final = _words("no max art mind tel ex lat z u d c")
"""Short forms that are words too when they are written like this: "I said no." but "No. 12"."""

NUMBERED: Final = _words(
    """
    no nos nr fig figs p pp pg s vol vols ch sec eq art abs kap bd str núm núms pág págs n nº ext tel op bl av bld
    """
)
"""Short forms that a number follows: "No. 12", "p. 14"."""

MONTHS_FOLLOW: Final = frozenset(
    {"de", "da", "nb", "nn", "no", "fi", "cs", "sk", "hu", "tr", "hr", "sl", "et", "is", "pl", "sr"}
)
"""Languages that write an ordinal number with a dot: "am 3. Oktober"."""
