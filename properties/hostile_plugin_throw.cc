// What C cannot do.
extern "C" void hostile_throw();
void hostile_throw() { throw 1; }
