"""What the stories are made of: who, where, what, and why one thing follows from another."""

GIRLS = ["Mara", "Lina", "Ida", "Nora", "Elsa", "Tilda", "Rosa", "Greta", "Juno", "Freya", "Olive",
         "Vera"]
BOYS = ["Tom", "Emil", "Oskar", "Piet", "Anton", "Felix", "Hugo", "Leo", "Milo", "Nils", "Otto",
        "Paul"]
ANIMALS = ["fox", "rabbit", "mouse", "bear", "hedgehog", "duck", "cat", "squirrel", "badger",
           "frog", "goat", "otter", "beaver", "sparrow", "owl", "turtle"]

SIZES = ["little", "small", "young"]
TRAITS = ["kind", "curious", "clever", "cheerful", "brave", "patient", "gentle", "quiet"]
COLORS = ["red", "blue", "green", "yellow", "white", "golden", "silver", "purple"]
HOMES = ["in a house by the river", "in a village below the mountain", "at the edge of the forest",
         "in a town near the sea", "on a farm behind the hill", "in a valley full of flowers",
         "in a hut on the island", "in an old mill beside the brook"]
TIMES = ["one morning", "one evening", "one day", "one sunny day", "one windy day",
         "one cold morning", "one afternoon"]
NIGHTS = ["one night", "one stormy night", "one summer night", "in the middle of the night"]
# A place and the word that goes before it.
SPOTS = [("under", "the old bridge"), ("behind", "the big barn"), ("beside", "the pond"),
         ("under", "the apple tree"), ("on top of", "the hill"), ("inside", "the hollow tree"),
         ("near", "the well"), ("between", "the tall reeds"), ("behind", "the garden wall"),
         ("at", "the crossroads"), ("in", "the hay loft"), ("under", "the wooden stairs")]
HELPERS = ["old owl", "friendly baker", "miller", "gray goose", "tall heron", "shepherd",
           "busy bee", "gardener", "black crow", "fisherman", "slow snail", "postman"]

# A thing, what its owner does with it, and why it is missed.
THINGS = [("kite", "fly it in the wind", "without it the windy days were dull"),
          ("boat", "let it swim on the water", "without it the pond looked empty"),
          ("lantern", "carry it through the dark", "without it the nights were too dark"),
          ("drum", "play it for the others", "without it nobody could dance"),
          ("scarf", "wear it in the snow", "without it the winter was too cold"),
          ("ball", "roll it down the hill", "without it there was no game to play"),
          ("flute", "play a song on it", "without it the evenings were silent"),
          ("bell", "ring it every morning", "without it everyone slept too long"),
          ("basket", "carry berries in it", "without it the berries fell on the ground"),
          ("umbrella", "hold it up in the rain", "without it the rain was very wet"),
          ("hat", "wear it in the sun", "without it the sun was too hot"),
          ("wagon", "pull it along the road", "without it the road seemed very long")]

# A dish, what it lacks, and where that comes from.
DISHES = [("cake", "honey", "the bees"), ("soup", "carrots", "the field"),
          ("bread", "flour", "the mill"), ("pie", "apples", "the orchard"),
          ("porridge", "milk", "the cow"), ("jam", "berries", "the forest"),
          ("salad", "leaves", "the garden"), ("pudding", "eggs", "the hens")]
FEASTS = ["birthday", "wedding", "name day", "feast"]

# What somebody is afraid of, what helps, and why.
FEARS = [("the dark", "a lamp", "in its light the shadows were only chairs and coats"),
         ("the thunder", "a song", "while they sang, nobody heard the storm"),
         ("deep water", "a piece of cork", "the cork carried them both on the water"),
         ("the high bridge", "a strong rope", "with the rope around them they could not fall"),
         ("the big dog", "a bone", "the dog only wanted something to eat"),
         ("the strange noise", "a candle", "it was only the wind in the chimney"),
         ("the deep forest", "a map", "on the map the forest was no bigger than a leaf"),
         ("the first day of school", "a book", "everyone in its pictures of a school was smiling")]

# What breaks, what breaks it, and what mends it.
DAMAGES = [("roof", "the storm blew a hole into it", "a ladder"),
           ("fence", "a cow had walked through it", "a hammer"),
           ("bridge", "the river had carried a plank away", "a long plank"),
           ("door", "the wind had torn it off", "a box of nails"),
           ("window", "a ball had flown through it", "a piece of glass"),
           ("boat", "a rock had cut into its side", "a bucket of tar"),
           ("cart", "it had lost a wheel on the road", "a round wheel"),
           ("chimney", "a stone had fallen from it", "a bag of clay")]

# A sound in the night and what makes it.
SOUNDS = [("knock", "a branch that tapped at the window", "cut the branch"),
          ("howl", "the wind that blew through a bottle", "took the bottle inside"),
          ("scratch", "a kitten that wanted to come in", "gave the kitten some milk"),
          ("drip", "a hole in the rain barrel", "put a cork into the hole"),
          ("squeak", "the gate that swung in the wind", "put oil on the gate"),
          ("rustle", "a hedgehog that looked for a warm bed", "made a bed of leaves"),
          ("hum", "a bee that had lost its way", "opened the window for the bee"),
          ("splash", "a frog that jumped in the water bucket", "carried the frog to the pond")]

PLANTS = [("sunflower", "taller than the house"), ("pumpkin", "as round as a wheel"),
          ("apple tree", "full of sweet apples"), ("rose", "as red as the evening sky"),
          ("bean", "so long that it reached the roof"), ("cherry tree", "white like snow"),
          ("melon", "too heavy for one to lift"), ("strawberry", "sweeter than honey")]

GOALS = [("the sea", "it was wide and blue and never stood still"),
         ("the top of the mountain", "from there the houses were as small as crumbs"),
         ("the great city", "there were more windows than anyone could count"),
         ("the end of the rainbow", "there was nothing but a meadow, and it was beautiful"),
         ("the lighthouse", "its light turned around and around all night"),
         ("the castle", "its doors were open, and only swallows lived in it"),
         ("the waterfall", "it sang louder than a hundred birds"),
         ("the old oak", "ten friends could not reach around it")]
ROADS = ["the wide field", "the narrow bridge", "the silent forest", "the muddy road",
         "the stone gate", "the green meadow", "the long tunnel", "the small village"]

# What is packed, and how it is called when it is eaten.
FOODS = [("bread and cheese", "bread and cheese"), ("two apples", "apples"), ("some nuts", "nuts"),
         ("a small cake", "cake"), ("five plums", "plums"), ("three carrots", "carrots")]
# What somebody on the way needs, and what helps.
NEEDS = [("hungry", "a piece of bread"), ("thirsty", "a sip of water"), ("sad", "a kind word"),
         ("cold", "a warm scarf"), ("tired", "a place to rest")]
