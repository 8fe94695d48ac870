"""The plots: templates of whole stories. [a|b] is a choice, {x} a slot; a slot's value stays the
same in the whole story, which is what a reader of its end has to remember of its beginning.

Slots: a, b, c are names; ka, kb, kc what they are; he, him, his are of a, bhe and so on of b."""

OPEN_ONE = [
    "Once upon a time there was a {size} {ka} {called} {a}. {He} lived {home}.",
    "Once upon a time, {home}, there lived a {trait} {ka} {called} {a}.",
    "{a} was a {trait} {ka} who lived {home}.",
    "There once was a {trait} {ka} {called} {a}.",
    "Long ago a {size} {ka} {called} {a} lived {home}.",
]
OPEN_TWO = [
    "Once upon a time there were two friends, a {ka} {called} {a} and a {kb} {called} {b}.",
    "Once upon a time a {trait} {ka} {called} {a} lived {home}. {His} best friend was {b} the "
    "{kb}.",
    "{a} the {ka} and {b} the {kb} were friends. They lived {home}.",
    "Long ago, {home}, there lived a {size} {ka} {called} {a} and a {trait} {kb} {called} {b}.",
]

LOST = [
    "{a} had a {color} {thing}, and {he} liked to {use}. [But {time}|Then, {time},] the {thing} "
    "was gone. {a} was sad, because {missed}.",
    "{He} looked {p1} {s1}, but [it was not there|there was only a feather|there was nothing but "
    "grass].",
    "[On the way {he} met|Then {he} met] the {helper}. \"Have you seen my {color} {thing}?\" asked "
    "{a}. \"[Yes|Oh yes],\" said the {helper}. \"{b} the {kb} found it {p3} {s3}.\"",
    "So {a} ran to {s3}. There sat {b} with the {color} {thing}. \"Is this yours?\" asked {b}. "
    "\"Yes,\" said {a}, \"[but we can share it|but come and play with me].\"",
    "[From that day on|After that], {a} and {b} went out together to {use}. [And the {color} "
    "{thing} was never lost again.|And {a} never left it {p3} {s3} again.|]",
]
COOK = [
    "{b}'s {feast} was near, and {a} wanted to make {dish1} for {bhim}. But there {was} no "
    "{stuff} in the house.",
    "[\"Without {stuff} there is no {dish},\" said {a}. |]So {he} took {his} {color} {bag} and "
    "went to {source}.",
    "[On the way|At {s1}] {he} met {c} the {kc}, who was {need}. {a} gave {chim} {gift}. "
    "\"Thank you,\" said {c}. \"I will help you carry the {stuff}.\"",
    "Together they filled the {color} {bag} and went home. [{a} stirred and baked until the "
    "{dish} was ready.|]",
    "[The next day|When the {feast} came] {b} tasted the {dish}. \"[It is the best {dish} in the "
    "world|I have never tasted anything better],\" said {b}. {a} smiled and gave the first piece "
    "to {c}, because {che} had carried the {stuff}.",
]
FEAR = [
    "{a} was afraid of {fear}. {Time} {b} the {kb} asked, \"Will you come with me [{p1} {s1}|to "
    "{s1}]?\"",
    "\"I cannot,\" said {a}. \"I am afraid of {fear}.\" {b} did not laugh. \"[I was afraid too, "
    "once|Everyone is afraid of something],\" said {b}. \"What helped me was {help}.\"",
    "So {b} [brought {help}|went home and came back with {help}], and they tried it together. "
    "[{a}'s heart beat fast, but {why}.|And it was true: {why}.]",
    "[\"Look,\" said {a}, \"nothing happened!\" |]They [danced|laughed|rested] {p1} {s1} until the "
    "[stars came out|sun went down].",
    "[Now|Since that day] {a} is not so afraid of {fear} any more. [And when somebody else is, "
    "{a} brings {help}.|And {he} never forgot what {b} had said.]",
]
MEND = [
    "{Time} {b} was in trouble. {bHis} {part} was broken: {how}. {b} sat {p1} {s1} and [cried|did "
    "not know what to do].",
    "\"[Do not worry|Do not cry], {b},\" said {a}. \"I have {tool}, and I will help you.\"",
    "{He} [ran|hurried] home and came back with {tool}. They worked [all day long|until noon|"
    "until it was dark], and {c} the {kc} [sang for them|brought them tea|held the {tool0}].",
    "[When the {part} was whole again, {b} asked, \"How can I thank you, {a}?\" \"A cup of tea is "
    "enough,\" said {a}.|Then the {part} was whole again, and {b} was happy.]",
    "But in the next [winter|spring] {a}'s {part} broke, and who came with {tool}? It was {b}. "
    "\"[You helped me, now I help you|I have not forgotten],\" said {b}.",
]
SOUND = [
    "{Night} {a} heard a {sound}. \"What was that?\" {he} asked. {He} [pulled the blanket over "
    "{his} head|sat up in bed], but there it was again: a {sound}[, and then another {sound}|].",
    "{a} went to {b} the {kb} and said, \"There is a {sound} [in the night|at my house].\" \"[It "
    "may be a ghost|Perhaps it is a monster],\" said {b}. [\"Let us look,\" said {a}.|]",
    "They took a {color} [lamp|lantern] and looked {p1} {s1}. Nothing. [They looked {p2} {s2}. "
    "Nothing. |]At last they found it: it was {maker}.",
    "{b} laughed. \"[So that is our monster|What a small ghost]!\" Then {a} {deed}.",
    "[That night|After that] it was quiet {home2}, and {a} slept [until noon|very well]. [But "
    "{b} still tells of the {sound} and the {color} light.|]",
]
PLANT = [
    "{Time} {a} found a seed {p1} {s1}. \"What will it be?\" asked {a}. {b} the {kb} said, \"[Put "
    "it in the ground and wait|You will know when it grows].\"",
    "So {a} put the seed in the ground {p2} {s2}. Every [morning|evening] {he} gave it water from "
    "a {color} [cup|can]. [Many days went by, and nothing happened. \"Be patient,\" said {b}.|]",
    "[Then the rain came, and after the rain came the sun, and there it was, a tiny green leaf.|"
    "After a week a tiny green leaf looked out of the ground.]",
    "It grew and grew, and in summer it was a {plant}, {size2}. [{a} called {b} and {c} the {kc}, "
    "and they danced around it.|{a} showed it to {b} and {c} the {kc}.]",
    "[\"It began with a seed {p1} {s1},\" said {a}. |]And {he} gave a new seed to {b} and a new "
    "seed to {c}, [because a garden is best when it is shared|so that everyone could have a "
    "{plant}].",
]
JOURNEY = [
    "{a} wanted to see {goal}. \"It is [far away|a long way],\" said {b}. \"Then we must start "
    "early,\" said {a}, and {he} packed {food} into a {color} {bag}.",
    "[First they came to {r1}, and there|At {r1}] {c} the {kc} asked, \"Where are you going?\" "
    "\"To {goal},\" said {a}. \"[Then I will come with you,|May I come too?]\" said {c}.",
    "[It began to rain. They sat under a tree and|When they were tired, they] shared the {food0} "
    "from the {color} {bag}.",
    "At last they saw {goal}, and {sight}. [\"Now I know,\" said {a}.|\"It is just as I dreamed,\" "
    "said {a}.|{a} said nothing at all, because it was so beautiful.]",
    "They went back past {r1}. {Home2} {a} hung the {color} {bag} [on the wall|over the bed], and "
    "whenever {he} saw it, {he} thought of {goal}[ and of {b} and {c}|].",
]
TRADE = [
    "{a} had a {color} {t1}, but {he} [wished for|wanted] a {t3}. [\"Perhaps somebody will "
    "trade,\" {he} said, and went down the road.|\"I will go and ask,\" {he} said.]",
    "{p1c} {s1} {he} met {b} the {kb}, who had a {t2}. \"[I need a {t1}|A {t1} is what I need],\" "
    "said {b}. So {a} gave {bhim} the {color} {t1} and got the {t2}.",
    "{p2c} {s2} {he} met {c} the {kc}, who had a {t3}. So {a} gave {chim} the {t2} and got the "
    "{t3}.",
    "Now {b} had the {t1}, {c} had the {t2}, and {a} had the {t3}. But [in the evening|after a "
    "week] {a} [missed|thought of] {his} {color} {t1}.",
    "\"You may borrow it whenever you like,\" said {b}, \"if I may borrow the {t3}.\" [And so they "
    "became good friends.|And so each of them had three things and two friends.]",
]
