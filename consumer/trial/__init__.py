"""``vertex-budget try``: a handler runs over files, in real handler processes, without Kafka.

``records`` reads files and cuts them into chunks of one size class, ``running`` gives the chunks to
processes and deals with those that die or hang, ``tally`` counts what came of it, ``report`` says
it. The flags are ``consumer.commands.try_flags``'s.
"""
