def repair(network, original, graph, kept, images):
    return ()
