"""All error messages of horovod.torch.compression; see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import NotServed, WrongArgument

# Texts, as in HOROVOD_COMPRESSION. Their errors begin with the argument or variable.

wrong_text = WrongArgument.says("{said}: {why}")
unknown_compressor = WrongArgument.says(
    "there is no {name!r}; there are {known:listed}, and what hvd.Compression.register() has added by "
    "now{hint}"
)
not_a_text = WrongArgument.says("it is not written as name, or name:option=value,option=value")
option_twice = WrongArgument.says("an option is given twice")
takes_no_options = WrongArgument.says("{compressor} is configured already, it takes no options")
unknown_option = WrongArgument.says("there is no option {option!r}; there are: {known:listed}{hint}")
not_a_boolean = WrongArgument.says("{option}: {value!r} is not true or false")
not_a_number = WrongArgument.says("{option}: {value!r} is not a number")
wrong_call = WrongArgument.says("{why}")

# Options.

wrong_choice = WrongArgument.says("{compressor}({option}={value!r}): allowed is {allowed}")
wrong_integer = WrongArgument.says(
    "{compressor}({option}={value!r}): allowed is an integer of {least} or more"
)
wrong_ratio = WrongArgument.says("TopKCompressor(ratio={value!r}): allowed is a number above 0 and up to 1")
ratio_and_k = WrongArgument.says("TopKCompressor(ratio={ratio}, k={k})", "give one of the two")
lloyd_unrotated = WrongArgument.says(
    "Int4Compressor(levels='lloyd') needs rotation='hadamard': its levels are those of normal numbers, "
    "which only rotated blocks hold"
)
lloyd_rounding = WrongArgument.says(
    "Int4Compressor(levels='lloyd') rounds to nearest only: between its outermost level and the block's "
    "largest element there is no second level to round to"
)

# Python classes.

no_compressor = WrongArgument.says(
    "{said}: this is no compressor: it lacks {method}()",
    "pass one of hvd.Compression, or a class or object with compress(tensor) -> (compressed, ctx) and "
    "decompress(compressed, ctx) -> tensor",
)
wrong_combine = WrongArgument.says("{said}: it has combine={value!r}; allowed is {allowed}")
needs_arguments = WrongArgument.says(
    "{said}: it cannot be made without arguments ({why})", "give its options defaults, or pass an instance"
)
feedback_of_one_call = WrongArgument.says(
    "compression={compressor}: error feedback is for the parameters of a DistributedOptimizer, which keeps "
    "for each what was lost of its last gradient",
    "leave it out of a single operation",
)
no_python_name = WrongArgument.says("Compression.register({name!r}): the name must be one that Python allows")
name_taken = WrongArgument.says("Compression.register({name!r}): the name is taken", "choose another one")
lacks_method = NotServed.says("a compressor needs {signature}")
lacks_rounds = NotServed.says('a compressor with combine="rounds" needs rounds(tensor, state)')
names_no_codec = NotServed.says("{compressor} names no codec")

# Codes.

no_codes = WrongArgument.says(
    "{compressor}.decompress: {elements} elements of {dtype} are no {codec} run of {of} values, which takes "
    "{expected} bytes (torch.uint8)"
)
no_topk_codes = WrongArgument.says(
    "TopKCompressor.decompress: {elements} elements of {dtype} are no codes of a tensor of {of} elements, "
    "which take {each} bytes (torch.uint8) each"
)
position_outside = WrongArgument.says("TopKCompressor.decompress: a position is outside of {shape}")

# Rules.

no_pattern = WrongArgument.says("{said}: a rule is for a pattern of names, as '*.bias', not {got}")
rule_matches_nothing = WrongArgument.says(
    "compression: the rule {pattern!r} matches no parameter; their names are: {names:listed}"
)
