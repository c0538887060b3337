"""Words that tell whether a dot ends a sentence: what may begin the next one, and which short forms never end one.

Only what the eight best-known languages need. sentencex knows the abbreviations of many more; these lists say what
it cannot know: whether a short form *can* stand at the end of a sentence.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ARTICLES",
    "GOES_ON",
    "HOURS",
    "LAST",
    "MAY_LAST",
    "MONTHS_FOLLOW",
    "NEVER_LAST",
    "NOT_AFTER_HOURS",
    "NUMBERED",
    "PARTICLES",
    "SAID",
    "STARTERS",
    "UNITS",
    "WORDS_TOO",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STARTERS: Final[dict[str, frozenset[str]]] = {
    "en": _words(
        """
        the a an it it's its he he's she she's we we're we've we'll they they're you you're you'll this that
        that's these those there there's here here's but and so then now if when while what what's who where why
        how is are was were do does did has have had can could would will shall should may might must my your
        his her our their in on at for from with to by after before as also however please yes no not let let's
        maybe perhaps later today tomorrow yesterday all some many most each every both one nobody everyone
        everybody nothing something because since until although though once first next finally still yet just
        only well sure thanks don't otherwise instead therefore meanwhile during under over between without
        within i i'm i'd i'll i've another turn take go come call press say see ask tell give keep try use open
        close check look make put read write send bring click select choose enter type wait hold stay leave stop
        start add remember note isn't aren't wasn't weren't won't doesn't didn't can't couldn't wouldn't
        shouldn't hasn't haven't about above across against along among around behind below beside beyond
        despite down except inside into like near off onto out outside past through throughout toward towards up
        upon via whenever wherever whether which whom whose few several any anyone anything everything someone
        somebody none neither either such same other others unfortunately fortunately actually certainly
        absolutely sorry hello hi okay ok enjoy bake mix stir boil serve drink eat relax rest drive walk run install delete save print pay sign dial usually often sometimes always never soon again already almost even
        ever quite rather really too very good great who'd that'll it'll there'll he'd she'd they'd they'll
        you'd we'd how's where's when's why's be been being hopefully indeed likewise moreover furthermore
        nevertheless nonetheless hence thus overall eventually
        """
    ),
    "de": _words(
        """
        der die das ein eine einen einem einer er sie es wir ihr ich du man dies diese dieser dieses diesen dann
        danach dort hier da aber und oder doch denn wenn als wie was wer wo warum wann ist sind war waren hat
        haben hatte kann können könnten möchten möchte soll sollen wird werden bitte ja nein nicht auch noch nun
        jetzt heute gestern im in am an auf aus bei mit nach von vom vor zu zum zur für um über unter seit alles
        mein meine ihre ihren unser unsere alle viele einige leider vielleicht später mehr dazu damit dabei
        daher deshalb darum so nur falls sobald bevor nachdem obwohl weil trotzdem außerdem niemand jeder jede
        jedes etwas nichts gut gerne natürlich jedoch zuerst zuletzt schließlich weder dafür davon dagegen
        inzwischen manche beide bis ob denen deren dessen durch gegen ohne trotz während wegen statt laut gemäß
        dank zwischen hinter neben unterhalb innerhalb außerhalb je jene jener jenes welche welcher welches wem
        wen wessen wohin woher womit wofür wieso weshalb mich dich sich uns euch mir dir ihm ihn ihnen sein
        seine seiner seinen deine dein eure euer unseren meinen meiner kein keine keinen keiner sollte sollten
        muss müssen müsste darf dürfen mag wollen will wurde wurden wäre hätte hätten gibt gehen geh gehe kommen
        komm rufen ruf warten warte nehmen nimm drücken sagen sag fragen frag schreiben schreib sehen sieh siehe
        lesen lies achten beachten denken melden öffnen schauen schau klicken wählen geben gib machen mach
        bringen bring bleiben bleib stellen legen holen hol prüfen sehr wirklich genau hallo danke
        entschuldigung mehrere wenige andere oft manchmal immer nie niemals bald wieder schon fast sogar
        eigentlich übrigens zudem ferner allerdings hingegen folglich somit also sonst stattdessen anschließend
        morgen übermorgen vorgestern abends morgens mittags nachts seitdem hierzu hierfür wahrscheinlich
        vermutlich hoffentlich insgesamt toll super prima klasse schön schade
        """
    ),
    "fr": _words(
        """
        le la les un une des il elle on nous vous ils elles je tu ce cela ça cette ces cet mais et ou puis alors
        donc si quand comme où qui que quel quelle quels quelles est sont était avez avons pouvez voulez peut
        dans en sur pour par avec sans après avant à au aux du chez sous vers mon ma mes votre vos notre nos
        leur leurs son sa ses tout tous toute toutes très bien oui non merci peut-être aujourd'hui demain hier
        ensuite enfin l j d c s n qu m'y t personne rien chaque plusieurs certains aussi ainsi cependant
        pourtant parce pourquoi combien comment voici voilà il-y-a est-ce y-a-t-il lui eux moi toi depuis
        pendant lorsque lorsqu puisque puisqu celle celui ceux celles lequel laquelle duquel auquel dont ni car
        or ne dès jusque jusqu selon malgré entre parmi derrière devant dessus dessous hors sauf contre envers
        outre via voir cf prenez tournez allez venez appelez appuyez dites attendez notez vérifiez cliquez
        choisissez entrez ouvrez fermez regardez écoutez demandez rappelez écrivez envoyez consultez lisez
        mettez faites donnez restez ajoutez essayez utilisez sommes suis es as ai ont y va fait faut trop assez
        plus moins même autre autres certaines chacun quelqu quelque quelques aucun aucune toutefois néanmoins
        finalement heureusement malheureusement bientôt souvent parfois toujours jamais encore déjà presque
        vraiment désolé bonjour salut veuillez ok
        """
    ),
    "es": _words(
        """
        el la los las un una unos unas yo tú él ella nosotros ellos ellas usted ustedes este esta esto estos
        estas ese esa eso esos esas aquel aquella pero y o e u si cuando como donde qué quién es son era está
        están hay ha han puede pueden quiere tiene en con por para desde sin sobre tras después antes luego
        entonces ahora hoy mañana ayer mi mis su sus nuestro nuestra todo todos toda todas muy más sí no tal
        también además gracias ya al se le lo me te nos les nadie nada algo alguien cada varios muchos algunas
        algunos otro otra aunque porque aquí allí así según durante entre hasta ante bajo contra excepto hacia
        mediante salvo cuyo cuya cuál cuáles cuánto cuánta cuántos quienes ni mas sino pues mientras apenas
        llame llámeme pulse diga espere tome gire vaya venga mire escuche abra cierre elija escriba envíe
        consulte lea ponga haga dé deje traiga vea pregunte recuerde anote revise use pruebe añada somos estoy
        estamos soy eres fue fueron será serán debe deben puedo podemos quiero queremos necesita necesito hubo
        había tenía tengo tenemos nuestros nuestras tu tus aquellos ninguno ninguna ningún cualquier ambos
        bastante demasiado poco pocos mismo misma quizá quizás ojalá lamentablemente afortunadamente finalmente
        primero segundo último pronto siempre nunca jamás todavía aún casi realmente claro vale bueno bien hola
        perdón disculpe
        """
    ),
    "it": _words(
        """
        il lo la i gli le un uno una io tu lui lei noi voi loro questo questa questi queste quello quella ma e o
        se quando come dove che chi è sono era ha hanno può in con per da su tra fra dopo prima poi allora ora
        oggi domani ieri mio suo tutto tutti molto più sì no anche grazie già non quelli quelle ci vi si ne mi
        ti al allo alla ai agli alle dal dalla dai dalle del dello della dei degli delle nel nello nella nei
        nelle sul sulla sui sulle col sotto sopra verso senza durante entro contro secondo oltre siamo sei siete
        sarà saranno aveva avevano abbiamo avete devo deve devono posso possiamo vuole vorrei bisogna c'è chiami
        prema dica aspetti prenda giri vada venga guardi apra chiuda scelga scriva invii legga metta faccia
        porti veda chieda ricordi provi quale quali quanto quanta quanti perché perciò però eppure infine
        inoltre comunque invece intanto mentre appena siccome benché sebbene ogni nessuno nessuna qualcuno
        qualcosa alcuni alcune altri altre entrambi troppo poco forse magari purtroppo fortunatamente presto
        sempre mai ancora quasi davvero certo bene ciao scusi buongiorno basta l dell nell sull dall all c
        """
    ),
    "pt": _words(
        """
        o a os as um uma uns umas eu tu ele ela nós eles elas você vocês este esta isto esse essa isso aquele
        mas e ou se quando como onde que quem é são era está estão há pode em no na nos nas com por para de do
        da depois antes então agora hoje amanhã ontem meu seu sua tudo todos muito mais sim não também obrigado
        já lhe lhes me te ao à aos às dos das num numa pelo pela pelos pelas sob sobre até sem entre contra
        segundo conforme durante perante após desde somos sou foi foram será serão tinha havia temos tenho deve
        devem posso podemos quer queremos precisa preciso ligue prima diga espere tome vire vá venha olhe abra
        feche escolha escreva envie consulte leia ponha faça traga veja pergunte lembre tente use qual quais
        quanto quanta quantos porque porquê pois portanto contudo porém todavia além ainda enquanto embora cada
        nenhum nenhuma ninguém nada algo alguém alguns algumas vários outros outras ambos bastante pouco poucos
        talvez infelizmente felizmente finalmente primeiro logo sempre nunca quase realmente claro bom bem olá
        desculpe lá ali aqui nosso nossa nossos suas seus minha meus
        """
    ),
    "nl": _words(
        """
        de het een hij zij ze wij we jij je u ik dit dat deze die maar en of als wanneer wat wie waar waarom hoe
        is zijn was waren heeft hebben kan kunnen wil wilt in op aan voor van met naar bij uit over na dan toen
        nu vandaag morgen gisteren mijn uw alle veel meer ja nee niet ook nog er hier daar zie bel kom ga neem
        druk zeg wacht kijk open sluit kies schrijf stuur lees zet doe geef breng vraag probeer gebruik let denk
        onthoud door tegen zonder tussen onder boven achter tijdens volgens via tot sinds binnen buiten langs
        rond hem haar hun ons onze jullie hen zich mij me jou jouw zou zouden moet moeten mag mogen ben bent
        wordt worden werd zal zullen gaat komt dus want omdat doordat terwijl hoewel zodra voordat nadat toch
        welke welk wiens elke ieder iedereen iemand niemand niets iets enkele sommige andere beide weinig heel
        erg goed graag misschien helaas gelukkig eerst later straks soms vaak altijd nooit al bijna echt
        natuurlijk hallo sorry bedankt daarom daarna eigenlijk verder bovendien echter
        """
    ),
}
"""What the next sentence may well begin with, and what a name or a noun does not; in small letters."""

MAY_LAST: Final[dict[str, frozenset[str]]] = {
    "en": _words(
        """
        Ave Rd Blvd Ln Hwy Sq Ct Pl Pkwy Jr Sr Inc Ltd Co Corp Bros Dept Univ Jan Feb Mar Apr Aug Sept Sep Oct Nov Dec
        Mon Tue Tues Wed Thu Thurs Fri Sat Sun
        """
    ),
    "de": _words(
        """
        Mio Mrd Tsd Std Min Sek Mon Jh Jhd Jhdt Jhs Jan Feb Febr Apr Jun Jul Aug Sept Sep Okt Nov Dez Mo Di Mi Do Fr
        Sa So Str Pl Co Bhf Stk Pck Jr Sen Inc Chr tägl mtl jährl wöchentl
        """
    ),
    "fr": _words("Cie janv févr avr juil oct nov déc hab éd Jr Inc Ltd"),
    "es": _words("Cía Cia ene feb abr jun jul ago sept oct nov dic hab ed seg Jr S.A S.L"),
    "it": _words("gen feb apr mag giu lug ago sett ott nov dic ab ed Jr S.p.A S.r.l"),
    "pt": _words("jan fev abr jun jul ago nov hab ed Jr Ltda S.A"),
    "nl": _words("jan feb mrt apr jun jul aug sept okt nov dec inw Jr Str"),
}
"""Short forms that may stand last, as they are written: a word that sentences begin with ends the sentence there,
and another one does not."""

UNITS: Final = _words("hr hrs min mins sec secs yr yrs wk tbsp tsp oz lb lbs ft yd mph qt kg km cm mm mg ml")
"""Units that a capital behind them ends the sentence after, where nouns have none: "3 lbs. Shipping is free."."""

GOES_ON: Final = _words("مع في من على إلى حتى عند يوم أو كل chr")
"""What follows a unit or an hour within a sentence, though it tells nothing by a small letter: "44 v. Chr."."""

PARTICLES: Final = _words("le la les de du des el al der van von da do dos di")
"""Words that names begin with, so that "J. Le Goff" is one name."""

ARTICLES: Final[dict[str, frozenset[str]]] = {
    "de": _words("der des"),
    "es": _words("el la al"),
    "it": _words("la le da"),
    "pt": _words("da do de"),
    "fr": _words("la les du des"),
}
"""Those of them that sentences begin with far more often than names."""

NEVER_LAST: Final[dict[str, frozenset[str]]] = {
    "en": _words(
        """
        deg
        mr mrs ms mx dr prof st rev hon gen col capt cmdr lt sgt maj pres gov sen rep messrs mt ft e.g i.e eg ie
        vs cf viz fig figs vol pp approx ca al dept adm brig cpl pvt supt insp amb atty msgr fr br hwy rte esp
        incl excl resp tel ext asst assoc est
        """
    ),
    "de": _words(
        """
        abg pfr bgm dir präs vors gen hptm lt maj kard frhr hl fam gebr stud cand
        hr hrn fr frl dr prof dipl ing st z.b zb z.t d.h dh bzw ca vgl wg evtl ggf inkl exkl max min mind nr abs
        art kap bd s.o s.u u.u h.c sog geb gest v.a i.d.r bspw zzgl abzgl str tel allg jap engl lat z d u fa inh
        freundl ges verh bes insb insbes einschl ausschl zw zzt z.zt z.hd i.a i.v p.a ehem entspr ggfs sen prok
        vors kath ev südl nördl östl westl österr schweiz dt frz durchschn urspr
        """
    ),
    "fr": _words(
        """
        m mm mme mmes mlle mlles dr pr me mgr st ste c.-à-d cad p.ex ex cf env av bd art fig chap vol no tél
        sté éts boul fg rdv réf resp vs dép approx n° sts pdt cdt lt cne
        """
    ),
    "es": _words(
        """
        sr sra srta sres dr dra prof profa d dña ing lic arq ud uds vd vds p.ej ej pág págs núm núms art av avda bs
        cap fig vol tel aprox gral sto sta c pza ptas srs excmo excma ilmo ilma lda ldo mtro rvdo ctra
        edif esq dpto p.p fr cnel tte
        """
    ),
    "hi": _words(
        """
        डॉ श्री श्रीमती प्रो कु पं मो रु सं क्र ई.पू बी.ए एम.ए प्रा पृ प्र स्व
        """
    ),
    "ar": _words(
        """
        د أ م ص ت ج ق.م هـ أ.د م.د ه ش هاتف ف مج رقم
        """
    ),
    "it": _words(
        """
        sig sigg dott prof avv ing on dr ecc.mo p.es es pag art fig n tel geom rag cav comm dott.ssa prof.ssa
        dr.ssa sig.ra sig.na p.zza p.le c.so v.le ca cfr vs cap vol fam f.lli spett egr gent
        """
    ),
    "pt": _words(
        """
        sr sra srta dr dra prof profa eng av pág p.ex ex núm fig art tel aprox gen cel cap ten sgt exmo exma
        ilmo ilma pe d dª dep sto sta lic nº n.º n vol cf vs al
        """
    ),
    "nl": _words(
        """
        dhr mevr mw dr prof ir ing bijv d.w.z nr blz fig art ca m.b.t tel drs bv mej hr ds st vs resp max min
        ong geb jl vlg evt excl incl z.g jhr bijz o.a m.a t.a.v i.v.m d.d m.i.v
        """
    ),
}
"""Short forms that always have something after them, without their last dot, in small letters."""

SAID: Final[dict[str, tuple[int, frozenset[str]]]] = {
    "en": (
        3,
        _words("asked said replied answered cried shouted whispered thought added called yelled muttered exclaimed"),
    ),
    "hi": (5, _words("कहा पूछा बोला बोली बोले बताया सोचा चिल्लाया चिल्लाई चीखा पुकारा फुसफुसाया")),
    "ar": (1, _words("قال قالت سأل سألت أجاب أجابت رد ردت صاح صاحت هتف هتفت همس همست صرخ صرخت")),
}
"""Verbs that tell who said a quotation, behind it, and within how many words they stand."""

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
