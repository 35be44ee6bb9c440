from ._runs import main

main()
